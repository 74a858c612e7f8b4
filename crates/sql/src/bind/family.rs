//! Tables with others below them: their rows are those of all of these, and a change is one of each.

use std::sync::Arc;

use lodestone_sql_types::{Error, Result, SqlState, Type, hash};

use super::change::{Bound, Set};
use super::scope::{Scope, ScopeColumn};
use super::{Binder, from};
use crate::catalog::family::{KeyPart, PartitionKey, PartitionNote, Strategy};
use crate::catalog::types::Types;
use crate::catalog::{Catalog, ColumnDef, TableDef};
use crate::locks::Mode;
use crate::parse::ast::{self, Item, LockWait, ObjectName, TableRef};
use crate::plan::{Access, Action, Change, Expr, FamilyPart, Limits, Member, Node, Scan};

/// The parts of an UPDATE or DELETE.
pub(super) struct Changed<'c> {
    /// `None`: a DELETE.
    pub set: Option<&'c Set>,
    pub from: &'c [TableRef],
    pub filter: Option<&'c ast::Expr>,
    pub returning: &'c [Item],
}

impl Binder<'_> {
    /// Whether a statement that names the table means others as well.
    pub(super) fn has_heirs(&self, name: &ObjectName, table: &TableDef) -> bool {
        !name.is_only && (table.partition_by.is_some() || !self.catalog.heirs(table.oid).is_empty())
    }

    /// The tables with rows that are meant by a table, each with its columns in theirs.
    pub(super) fn members(&self, table: &Arc<TableDef>) -> Vec<(Arc<TableDef>, Vec<usize>)> {
        let own = (table.clone(), (0..table.columns.len()).collect());
        let mut found = vec![own];
        found.extend(self.catalog.heirs_of(table));
        found.retain(|(member, _)| member.partition_by.is_none());
        found
    }

    /// All rows of a table and of those below it.
    pub(super) fn family_rows(&self, table: &Arc<TableDef>) -> Node {
        let rows = |member: Arc<TableDef>, map: Vec<usize>| {
            let is_same = map.len() == member.columns.len() && map.iter().enumerate().all(|(place, own)| place == *own);
            let oid = member.oid;
            let scan = Node::Scan(Box::new(all_rows(member)));
            if is_same && !self.shows_oids {
                return scan;
            }
            let columns = map.into_iter().map(|index| Expr::Column { depth: 0, index });
            let oid = self.shows_oids.then(|| oid_expr(oid));
            Node::Project { input: Box::new(scan), columns: columns.chain(oid).collect() }
        };
        let part = |(member, map): (Arc<TableDef>, Vec<usize>)| {
            let limits = self.bounds_of(table, &member, &map);
            let node = rows(member, map);
            Member { node, limits }
        };
        Node::Append(self.members(table).into_iter().map(part).collect())
    }

    /// The bounds of the rows of a member, whose columns are those of `map`.
    pub(super) fn bounds_of(&self, root: &TableDef, member: &TableDef, map: &[usize]) -> Vec<Limits> {
        let mut found = Vec::new();
        // The columns of the table at hand that the columns of the root are.
        let (mut table, mut own) = (member, map.to_vec());
        while table.oid != root.oid {
            let Some(parent) = self.catalog.partitioned(table) else { break };
            let Some(family) = self.catalog.families.get(&parent.oid) else { break };
            let heir = family.heirs.iter().find(|heir| heir.table.oid == table.oid);
            let (Some(key), Some(heir)) = (&family.key, heir) else { break };
            let Some(bound) = heir.bound.clone() else { break };
            let above = |column: &usize| heir.map.iter().position(|below| below == column);
            let Some(up) = own.iter().map(above).collect::<Option<Vec<usize>>>() else { break };
            own = up;
            let root_column = |part: &KeyPart| own.iter().position(|column| Some(*column) == part.column);
            let is_default = bound == crate::catalog::family::Bound::Default;
            let others = family.heirs.iter().filter(|other| is_default && other.table.oid != table.oid);
            found.push(Limits {
                key: key.clone(),
                columns: key.keys.iter().map(root_column).collect(),
                bound,
                others: others.filter_map(|other| other.bound.clone()).collect(),
            });
            table = parent;
        }
        found
    }

    /// The rows of a table alone, with its number if that is asked for.
    pub(super) fn own_rows(&self, scan: Scan) -> Node {
        let (oid, width) = (scan.table.oid, scan.table.columns.len() + usize::from(scan.shows_number));
        let scan = Node::Scan(Box::new(scan));
        if !self.shows_oids {
            return scan;
        }
        let columns = (0..width).map(|index| Expr::Column { depth: 0, index });
        Node::Project { input: Box::new(scan), columns: columns.chain([oid_expr(oid)]).collect() }
    }

    /// The column with the number of the table of each row.
    pub(super) fn oid_column(&self, shown: &str) -> Option<ScopeColumn> {
        self.shows_oids.then(|| ScopeColumn {
            table: Some(shown.to_owned()),
            name: "tableoid".into(),
            ty: Type::Oid,
            modifier: -1,
            origin: None,
            is_hidden: true,
            is_outer: false,
            relation: None,
        })
    }

    /// UPDATE or DELETE of a table and of those below it.
    pub(super) fn change_family(&mut self, table: &Arc<TableDef>, shown: &str, parts: &Changed<'_>) -> Bound {
        let mode = if parts.set.is_some() { Mode::NoKeyUpdateRow } else { Mode::UpdateRow };
        // The table itself first: for the names, the errors and the columns that are returned.
        let own = self.changed_columns(table, table, shown);
        let mut columns = self.joined((table, table), shown, parts.from)?.1;
        let others = columns.split_off(own.len() + usize::from(table.hidden.is_some()));
        let scope = Scope { columns: own.into_iter().chain(others).collect(), parent: None };
        if let Some(set) = parts.set {
            self.assigned_after(table, set, &scope, (parts.filter, parts.returning))?;
        }
        let mut conditions = Vec::new();
        if let Some(filter) = parts.filter {
            self.condition(filter, &scope, "WHERE")?.conjuncts(&mut conditions);
        }
        let mut found = Vec::new();
        for (member, map) in self.members(table) {
            if self.bounds_of(table, &member, &map).iter().any(|limits| limits.exclude(&conditions)) {
                continue;
            }
            let change = self.change_member((table, &member), (shown, &map), parts, mode)?;
            found.push(FamilyPart { change, map });
        }
        let (returned, output) = self.returning(scope.columns, parts.returning)?;
        let change = Change::Family { root: table.clone(), parts: found, is_update: parts.set.is_some() };
        Ok((Action::Change(change, returned), output))
    }

    fn change_member(
        &mut self,
        (root, member): (&TableDef, &Arc<TableDef>),
        (shown, map): (&str, &[usize]),
        parts: &Changed<'_>,
        mode: Mode,
    ) -> Result<Change> {
        let hide = |mut columns: Vec<ScopeColumn>| {
            let own = columns.iter_mut().take(member.columns.len()).enumerate();
            own.filter(|(place, _)| !map.contains(place)).for_each(|(_, column)| column.is_hidden = true);
            Scope { columns, parent: None }
        };
        if parts.from.is_empty() {
            let scope = hide(self.changed_columns(root, member, shown));
            let set = parts.set.map(|set| self.assigned(member, set, &scope)).transpose()?;
            let scan = self.target(member, parts.filter, &scope, mode)?;
            return Ok(match set {
                Some(set) => Change::Update { scan, set },
                None => Change::Delete { scan },
            });
        }
        let (node, columns) = self.joined((root, member), shown, parts.from)?;
        let scope = hide(columns);
        let set = parts.set.map(|set| self.assigned(member, set, &scope)).transpose()?;
        let filter = parts.filter.map(|filter| self.condition(filter, &scope, "WHERE")).transpose()?;
        let input = match filter.clone() {
            Some(filter) => self.filter(node, filter),
            None => node,
        };
        Ok(Change::Joined { table: member.clone(), input, filter, set, view: None })
    }
}

pub(super) fn oid_expr(oid: u32) -> Expr {
    Expr::Const(lodestone_sql_types::Datum::Int(oid.into()))
}

/// All rows of a table.
pub(super) fn all_rows(table: Arc<TableDef>) -> Scan {
    Scan {
        table,
        access: Access::All,
        filter: None,
        locks: None,
        wait: LockWait::Wait,
        is_read: false,
        shows_number: false,
    }
}

/// The key of a partitioned table.
///
/// # Errors
/// As CREATE TABLE.
pub fn partition_key(types: &Types, table: &str, columns: &[ColumnDef], note: &PartitionNote) -> Result<PartitionKey> {
    let parts =
        note.keys.iter().map(|text| Ok(ast::Default { expr: crate::parse::parse_expr(text)?, text: text.clone() }));
    partition_key_of(types, table, columns, (note.strategy, &parts.collect::<Result<Vec<_>>>()?))
}

/// The key of a table that becomes partitioned.
///
/// # Errors
/// 42703; 42P17; 0A000.
pub fn partition_key_of(
    types: &Types,
    table: &str,
    columns: &[ColumnDef],
    (strategy, parts): (Strategy, &[ast::Default]),
) -> Result<PartitionKey> {
    let catalog = Catalog { types: types.clone(), ..Catalog::default() };
    let mut binder = Binder::new(&catalog);
    binder.place = "in partition key expressions";
    let scope = Scope { columns: from::scope_columns(0, columns, table), parent: None };
    let wrong = |message: &str| Error::new(SqlState::INVALID_OBJECT_DEFINITION, message.to_owned());
    let mut keys = Vec::new();
    for part in parts {
        let name = match &part.expr {
            ast::Expr::Column(names, at) if names.len() == 1 => Some((names[0].clone(), *at)),
            _ => None,
        };
        if let Some((name, at)) = &name
            && !columns.iter().any(|column| column.name == *name)
        {
            if matches!(name.as_str(), "xmin" | "xmax" | "cmin" | "cmax" | "ctid" | "tableoid") {
                return Err(wrong(&format!("cannot use system column \"{name}\" in partition key")).at(*at));
            }
            let message = format!("column \"{name}\" named in partition key does not exist");
            return Err(Error::new(SqlState::UNDEFINED_COLUMN, message).at(*at));
        }
        let typed = binder.expr(&part.expr, &scope)?;
        let column = match &typed.expr {
            Expr::Column { depth: 0, index } => Some(*index),
            _ => None,
        };
        let mut names_generated = false;
        let mut names_any = false;
        typed.expr.walk(&mut |part| {
            if let Expr::Column { depth: 0, index } = part {
                names_any = true;
                names_generated |= columns.get(*index).is_some_and(|column| column.is_generated);
            }
        });
        match () {
            () if names_generated => {
                return Err(wrong("cannot use generated column in partition key"));
            }
            () if typed.expr.has_subquery() => {
                let message = "cannot use subquery in partition key expression";
                return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
            }
            () if !super::is_immutable(&typed.expr) => {
                return Err(wrong("functions in partition key expression must be marked IMMUTABLE"));
            }
            () if !names_any => return Err(wrong("cannot use constant expression as partition key")),
            () => {}
        }
        let ty = if typed.ty == Type::Unknown { Type::Text } else { typed.ty };
        if strategy == Strategy::Hash && !hash::has_hash(ty) {
            return Err(Error::unsupported(format!("a hash of the type {ty}")));
        }
        if ty == Type::Json || ty.is_row() {
            let class = if strategy == Strategy::Hash { "hash" } else { "btree" };
            let message = format!("data type {ty} has no default operator class for access method \"{class}\"");
            return Err(Error::new(SqlState::UNDEFINED_OBJECT, message));
        }
        keys.push(KeyPart { text: part.text.clone(), column, expr: typed.expr, ty, modifier: typed.modifier });
    }
    Ok(PartitionKey { strategy, keys })
}
