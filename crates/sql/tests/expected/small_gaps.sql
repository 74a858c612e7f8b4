-- The number of no object.
select 0::regclass, 0::regtype, 0::regproc, 0::regnamespace;
select 0::regclass::text, 0::regtype::text, '-'::regclass, '-'::regtype, '-'::regclass::oid, '0'::regclass;
select format('%s', 0::regclass), '99999'::regclass, ('-'::regclass)::oid = 0;
create domain positive as int check (value > 0);
select conname, conrelid::regclass, conindid::regclass from pg_constraint where conname = 'positive_check';
-- The tables of views.
create schema o;
create table t (id int primary key, v int);
create table o.t (id int);
create view v as select id from t where exists (select from o.t u where u.id = t.id);
create view w as select v.id, (select max(id) from o.t) from v union select 1, 2;
create view o.v as with x as (select id from t) select id from x;
create view n as select 1 as one;
select view_schema, view_name, table_schema, table_name from information_schema.view_table_usage where
  view_schema in ('o', 'public') order by 1, 2, 3, 4;
drop view w;
select view_name, table_name from information_schema.view_table_usage where view_schema = 'public' order by 1, 2;
-- Recursive views.
create recursive view steps (n) as values (1) union all select n + 1 from steps where n < 5;
select sum(n), count(*) from steps;
create or replace recursive view steps (n) as select 1 union select n + 1 from steps where n < 3;
select * from steps order by n;
create recursive view o.pairs (a, "B b") as select 1, 2 union all select a + 1, "B b" * 2 from pairs where a < 4;
select * from o.pairs order by a;
create temp recursive view short (n) as select 1 union all select n + 1 from short where n < 2;
select max(n) from short;
create or replace temporary recursive view short (n) as select 7;
select * from short;
drop view steps, o.pairs;
create table q (k int unique, v int) partition by range (k);
create table q1 partition of q for values from (0) to (10);
create table q2 partition of q for values from (10) to (20);
insert into q values (1, 0), (11, 0);
insert into q values (1, 5), (11, 5) on conflict (k) do update set v = excluded.v;
select * from q order by k;
insert into q values (1, 6), (1, 7) on conflict (k) do update set v = excluded.v;
