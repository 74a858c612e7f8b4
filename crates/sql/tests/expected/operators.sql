-- Operators in the catalog.
select oid, oprname, oprkind, oprleft::regtype, oprright::regtype, oprresult::regtype from pg_operator where oprname in ('+', '<', '=') and oprleft in ('int4'::regtype, 'text'::regtype, 'numeric'::regtype, 'date'::regtype) and oprright not in (1266, 3220) order by oid;
select oprname, oprright::regtype, oprresult::regtype from pg_operator where oprkind = 'l' and oprname in ('-', '~', '|/') and oprright not in (1560, 869, 829, 774) order by oid;
select o.oprname, c.oprname, n.oprname from pg_operator o left join pg_operator c on c.oid = o.oprcom left join pg_operator n on n.oid = o.oprnegate where o.oprleft = 'int8'::regtype and o.oprright = 'int8'::regtype and o.oprresult = 'bool'::regtype order by o.oid;
select oprcanmerge, oprcanhash, n.nspname, oprowner from pg_operator o join pg_namespace n on n.oid = oprnamespace where o.oid in (96, 521) order by o.oid;
select oprname, oprleft::regtype, oprright::regtype from pg_operator where oprleft = 'jsonb'::regtype and oprname in ('->', '->>', '@>', '||', '?', '#-') order by oid;
