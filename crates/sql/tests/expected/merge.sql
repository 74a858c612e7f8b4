create table t (id int primary key, v text, n int default 7 check (n < 1000));
create table s (id int, v text, n int);
insert into t values (1, 'one', 1), (2, 'two', 2), (3, 'three', 3);
insert into s values (2, 'TWO', 20), (3, 'THREE', 30), (4, 'FOUR', 40);
merge into t using s on t.id = s.id when matched then update set v = s.v, n = t.n + s.n
when not matched then insert values (s.id, s.v, s.n);
select * from t order by id;
merge into t using s on t.id = s.id when matched and s.n > 25 then delete when matched and t.id = 2 then do nothing
when matched then update set v = 'rest' when not matched then do nothing;
select * from t order by id;
merge into t as x using s as y on x.id = y.id
when not matched and y.n >= 40 then insert (id, v) values (y.id, y.v || '!')
when not matched then insert default values;
merge into t as x using s as y on x.id = y.id
when not matched and y.n >= 40 then insert (id, v) values (y.id, y.v || '!')
when not matched then insert (v, id) values (default, y.id);
select * from t order by id;
merge into t using (values (1, 'a'), (9, 'b')) as q (k, w) on id = k
when matched then update set (v, n) = (w, default)
when not matched then insert (id, v) values (k, w);
select * from t order by id;
merge into t using (select 1 as k union all select 1) q on id = k when matched then update set n = n + 1;
merge into t using (select 1 as k union all select 1) q on id = k when matched then delete;
merge into t using (select 1 as k union all select 1) q on id = k when matched then do nothing;
merge into t using (select 50 as k union all select 50) q on id = k when not matched then insert (id) values (k);
select count(*) from t where id = 50;
merge into t using s on t.id = s.id when matched then update set n = 5000;
merge into t using s on t.id = s.id when matched then update set id = null;
merge into t using (select 60 as k) q on false when not matched then insert (id, n) values (k, 1000);
merge into t using s on t.id = s.id when matched then update
set v = (select max(v) from t), n = (select count(*) from t);
select * from t order by id;
merge into t using s on t.id = s.id and exists (select 1 from t z where z.id = s.id + 1) when matched then delete;
select * from t order by id;
merge into t using s a join s b on a.id = b.id + 1 on t.id = a.id when matched then update set n = b.n
when not matched then insert values (a.id, b.v, b.n);
select * from t order by id;
with w as (select id + 100 as k, v from s) merge into t using w on t.id = w.k
when not matched then insert (id, v) values (k, v);
select * from t where id > 100 order by id;
with w (k) as (select 102), d as (select 103 as k) merge into t using w on t.id = k
when matched and exists (select 1 from d where d.k = 103) then delete;
with recursive w as (select 1) merge into t using s on true when matched then delete;
with w as (merge into t using s on t.id = s.id when matched then delete) select 1;
with ins as (insert into s values (77, 'new', 77) returning id, v) merge into t using ins on t.id = ins.id
when not matched then insert (id, v) values (ins.id, ins.v);
select * from t where id = 77;
select * from s where id = 77;
merge into t using s on t.id = s.id when matched then update set v = 1 when matched then delete;
merge into t using s on t.id = s.id when matched then delete returning *;
merge into t using s on t.id = s.id when not matched by source then delete;
merge into t using s on t.id = s.id when matched then insert values (1);
merge into t using s on t.id = s.id when not matched then delete;
merge into t using s on t.id = s.id when not matched then insert values (1), (2);
merge into t using s on t.id = s.id when not matched then insert select 1;
merge into t using s on t.id = s.id;
merge t using s on t.id = s.id when matched then delete;
merge into t using t on true when matched then delete;
merge into t as a using s as a on true when matched then delete;
merge into t as s using s on true when matched then delete;
merge into nowhere using s on true when matched then delete;
merge into t using nowhere on true when matched then delete;
merge into t using s on t.id = s.id when not matched then insert values (t.id);
merge into t using s as q on t.id = q.id when not matched and t.n = 1 then insert values (1);
merge into t using (select 1 as k) q on t.id = k when not matched then insert values (n);
merge into t using (select 1 as k) q on t.id = k when not matched and v = 'x' then insert values (1);
merge into t using s on id = id when matched then delete;
merge into t using s on t.id = s.id when matched and v = 'x' then delete;
merge into t using s on t.id = s.id when matched and t.n then delete;
merge into t using s on t.id = s.id when matched and count(*) > 1 then delete;
merge into t using s on count(*) > 1 when matched then delete;
merge into t using s on t.id = s.id when matched then update set zz = 1;
merge into t using s on t.id = s.id when matched then update set n = 1, n = 2;
merge into t using s on t.id = s.id when matched then update set n = 'x';
merge into t using s on t.id = s.id when matched then update set n = s.v;
merge into t using s on t.id = s.id when not matched then insert (id, zz) values (1, 2);
merge into t using s on t.id = s.id when not matched then insert (id, id) values (1, 2);
merge into t using s on t.id = s.id when not matched then insert (id, v) values (1);
merge into t using s on t.id = s.id when not matched then insert (id) values (1, 2);
merge into t using s on t.id = s.id when not matched then insert values (1, 2, 3, 4);
create view tv as select * from t;
merge into tv using s on tv.id = s.id when matched then delete;
merge into t using tv on t.id = tv.id + 1000 when matched then delete;
create sequence sq;
merge into sq using s on true when matched then delete;
create view mv as merge into t using s on t.id = s.id when matched then delete;
copy (merge into t using s on t.id = s.id when matched then delete) to stdout;
create table g (id int generated always as identity primary key, k int generated by default as identity (start 100),
  a int, twice int generated always as (a * 2) stored);
merge into g using s on g.a = s.n when not matched then insert (a) values (s.n);
select count(*), min(k), max(twice) from g;
merge into g using s on g.a = s.n when matched then update set a = g.a + 1;
select a, twice from g order by a;
merge into g using s on g.a = s.n when matched then update set twice = 1 when not matched then do nothing;
merge into g using s on g.a = s.n when matched then update set id = 1;
merge into g using s on g.a = s.n when not matched then insert (id) values (1);
merge into g using s on g.a = s.n when not matched then insert (twice) values (1);
merge into g using (select 500 as x) q on a = x when not matched then insert (id, k, a) overriding system value
values (x, x, x);
merge into g using (select 600 as x) q on a = x when not matched then insert (id, k, a) overriding user value
values (x, x, x);
select id > 100, k > 400, a from g where a >= 500 order by a;
merge into g using (select 700 as x) q on a = x
when not matched then insert (id, twice, a) values (default, default, x);
select twice from g where a = 700;
create table parent (id int primary key);
create table child (id int primary key, p int references parent on delete cascade on update cascade);
insert into parent values (1), (2), (3);
insert into child values (10, 1), (20, 2);
merge into child using (values (10, 9), (30, 3)) q (i, p) on child.id = q.i when matched then update set p = q.p
when not matched then insert values (i, q.p);
merge into child using (values (10, 3), (30, 3)) q (i, p) on child.id = q.i when matched then update set p = q.p
when not matched then insert values (i, q.p);
select * from child order by id;
merge into parent using (values (3), (2), (5)) q (i) on id = i when matched and i = 3 then delete
when matched then update set id = 22 when not matched then insert values (i);
select * from child order by id;
select * from parent order by id;
create table u (a int unique deferrable initially deferred, b int);
insert into u values (1, 1), (2, 2);
begin;
merge into u using (values (1, 2), (2, 1)) q (x, y) on a = x when matched then update set a = y;
select * from u order by b;
commit;
begin;
merge into u using (values (1, 2)) q (x, y) on a = x when matched then update set a = y;
commit;
select * from u order by b;
create table nokey (a int, b text);
insert into nokey values (1, 'x'), (1, 'y'), (2, 'z');
merge into nokey using (values (1, 'same'), (3, 'new')) q (k, w) on a = k when matched then update set b = w
when not matched then insert values (k, w);
select * from nokey order by a, b;
merge into nokey using (values (1)) q (k) on a = k when matched then delete;
select * from nokey order by a, b;
create table pt (k int, v text) partition by range (k);
create table pt1 partition of pt for values from (0) to (10);
create table pt2 (v text, k int);
alter table pt attach partition pt2 for values from (10) to (20);
insert into pt values (1, 'a'), (11, 'b');
merge into pt using (values (1, 12), (11, 11), (15, 15), (3, 3)) q (a, b) on k = a when matched and a = b then delete
when matched then update set k = b, v = v || '+' when not matched then insert values (b, 'new');
select tableoid::regclass, * from pt order by k;
merge into pt using (values (99)) q (a) on k = a when not matched then insert values (a, 'none');
merge into pt using (values (3)) q (a) on k = a when matched then update set k = 77;
create table base (a int, b int);
create table derived (c int primary key) inherits (base);
insert into base values (1, 1);
insert into derived values (2, 2, 2), (3, 3, 3);
merge into base using (values (1, 10), (2, 20), (4, 40)) q (x, y) on a = x when matched then update set b = y
when not matched then insert values (x, y);
select tableoid::regclass, * from base order by a;
merge into only base using (values (2, 20), (1, 1)) q (x, y) on a = x when matched then delete;
select tableoid::regclass, * from base order by a;
prepare m (int, text) as merge into t using (select $1 as k) q on t.id = q.k when matched then update set v = $2
when not matched then insert (id, v) values (q.k, $2);
execute m (1, 'first');
execute m (900, 'second');
execute m (900, 'third');
select id, v from t where id in (1, 900) order by id;
begin isolation level repeatable read;
execute m (900, 'in transaction');
rollback;
begin isolation level serializable;
execute m (900, 'serializable');
commit;
select v from t where id = 900;
begin read only;
execute m (1, 'read only');
rollback;
create schema o;
create table o.t (id int, v text);
insert into o.t values (1, 'from o');
merge into t using o.t on public.t.id = o.t.id when matched then update set v = o.t.v;
merge into public.t using o.t on public.t.id = o.t.id when matched then update set v = o.t.v;
select v from t where id = 1;
create table arr (id int primary key, list int[], doc jsonb);
insert into arr values (1, '{1,2,3}', '{"a": 1}');
merge into arr using (values (1, 5), (2, 6)) q (k, x) on id = k
when matched then update set list[2] = x, doc['b'] = '2'
when not matched then insert (id, list) values (k, array[x]);
select * from arr order by id;
merge into arr using (values (1)) q (k) on id = k
when matched then update set (list, doc) = (select '{9}'::int[], null);
select * from arr order by id;
create table merge (a int);
insert into merge values (1);
with merge as (select 2 as a) select * from merge;
select * from merge;
