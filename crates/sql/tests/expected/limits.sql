create table src (a int generated always as identity (start 10 increment 5), b text, c int default 3);
create table dst (x int, check (x > 0), like src including identity including defaults, y int);
insert into dst (x, b, y) values (1, 'p', 2), (1, 'q', 2);
select * from dst;
select interval(0) '-1.5 s', interval(0) '2.5 s', '3.5 s'::interval(0), interval(3) '1.23456 s';
select date 'infinity' + 1, date 'infinity' + time '10:00', extract(year from date '5874897-12-31');
select json_agg(x), jsonb_agg(y) from dst;
select regexp_replace('foo bar', '\m', '<', 'g'), regexp_replace('foo bar', '\M', '>', 'g'), 'ab' ~ '\mb', 'ab' ~ 'a\M', 'foo bar' ~ '[[:<:]]bar[[:>:]]';
