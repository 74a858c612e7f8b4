-- "char" is one byte.
select '\101'::"char", '\377'::"char", '\000'::"char" = '', '\777'::"char", '\378'::"char", 'abc'::text::"char", '\41'::"char", ''::"char" = '\000'::"char";
select '\377'::"char"::text, '\000'::"char"::text = '', '\377'::text::"char", '\344'::"char"::varchar, length('\344'::"char"::text);
select U&'\00e9'::"char", '\377'::"char" > 'z', '\200'::"char" < '\201'::"char", array['\101'::"char", '\344'];
create table c (a "char", b "char"[]);
insert into c values ('\344', array['\101'::"char", '\344']), ('b', null), ('', null);
select a, b, length(a::text), a = '\344' from c order by a;
-- Empty matches right after others, and the beginning of a search.
select regexp_matches('ab', 'a?', 'g');
select regexp_matches(chr(10) || '1' || chr(10) || '2', '.?$', 'mg');
select regexp_replace('ab', 'a?', 'X', 'g'), regexp_count('ab', 'a?'), regexp_replace('aab', 'a*', 'X', 'g');
select regexp_replace('aab', 'a*', 'X', 1, 2), regexp_replace('aab', 'a*', 'X', 1, 3), regexp_replace('aab', 'a*', 'X', 1, 4);
select regexp_replace('abc', '^b', 'X', 2), regexp_count('aab', '^a', 2), regexp_instr('aab', '^a', 2), regexp_substr('aab', '^a', 2);
select regexp_instr('aab', 'a*', 1, 2), regexp_substr('aab', 'a*', 1, 2) = '', regexp_count(U&'\00e4b\00e4', U&'\00e4?');
select regexp_split_to_array('abc', 'b*'), regexp_split_to_array('aab', 'a*');
-- Templates.
select i, to_char(i * interval '1mon', 'rm'), to_char(i * interval '1mon', 'FMRM') from generate_series(-13, 13) i;
select to_char(interval '5 days', 'rm'), to_char(interval '-1 year', 'RM'), to_char(interval '1 year', 'FMRM');
select to_char(timestamp '2020-01-02 03:04:05', '"a\"b" "c\\d" \"HH\" \HH \\HH "e\x" "open HH');
-- Bins that are too wide.
select date_bin('15 minutes'::interval, timestamp '294276-12-30', timestamp '4000-12-20 BC');
select date_bin('15 minutes'::interval, timestamptz '294276-12-30 00:00+00', timestamptz '4000-12-20 00:00+00 BC');
select date_bin('200000000 days'::interval, '2024-02-01'::timestamp, '2024-01-01'::timestamp);
select date_bin('-5 days'::interval, '2024-02-01'::timestamp, '2024-01-01'::timestamp);
select date_bin('5 days'::interval, '2024-02-01'::timestamp, '2024-01-01'::timestamp);
