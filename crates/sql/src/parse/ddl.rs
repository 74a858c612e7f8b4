//! Definitions of tables and indexes.

use lodestone_sql_types::{Error, Result};
use sqlparser::ast as tree;
use sqlparser::ast::helpers::stmt_create_table::CreateTableBuilder;

use super::ast::{
    Alter, CheckDef, ColumnDef, ConstraintDef, Default, Expr, ForeignDef, Identity, KeyAction, KeyDef, Literal,
    ObjectName, OnCommit, Placing, Position, SequenceOptions, Statement,
};
use super::{Converter, refuse};

impl Converter<'_> {
    pub(super) fn create_table(&self, table: tree::CreateTable) -> Result<Statement> {
        let name = super::table::in_schema(self.object(&table.name)?, table.temporary)?;
        // Nothing that a crash would take away is kept in the first place, so a table is logged.
        let on_commit = match table.on_commit {
            Some(tree::OnCommit::DeleteRows) => Some(OnCommit::DeleteRows),
            Some(tree::OnCommit::Drop) => Some(OnCommit::Drop),
            None | Some(tree::OnCommit::PreserveRows) => None,
        };
        if table.on_commit.is_some() && name.schema.as_deref() != Some(super::table::TEMPORARY) {
            let message = "ON COMMIT can only be used on temporary tables";
            return Err(Error::new(lodestone_sql_types::SqlState::INVALID_TABLE_DEFINITION, message));
        }
        let mut table = table;
        table.temporary = false;
        table.unlogged = false;
        table.global = None;
        table.on_commit = None;
        // Everything that is not named here must be absent.
        let plain = CreateTableBuilder::new(table.name.clone())
            .if_not_exists(table.if_not_exists)
            .columns(table.columns.clone())
            .constraints(table.constraints.clone())
            .table_options(table.table_options.clone())
            .build();
        if tree::Statement::CreateTable(table.clone()) != tree::Statement::from(plain) {
            let what = match () {
                () if table.query.is_some() => "CREATE TABLE AS",
                () if table.like.is_some() => "CREATE TABLE (LIKE ..)",
                () => "this form of CREATE TABLE",
            };
            return Err(refuse(what, name.at));
        }
        let placing = self.placing(&table.table_options)?;
        let (mut columns, mut constraints) = (Vec::new(), Vec::new());
        for column in table.columns {
            columns.push(self.column(column, &mut constraints)?);
        }
        for constraint in table.constraints {
            constraints.push(self.constraint(constraint, name.at)?);
        }
        Ok(Statement::CreateTable {
            name,
            if_not_exists: table.if_not_exists,
            columns,
            constraints,
            likes: Vec::new(),
            relatives: None,
            on_commit,
            placing,
        })
    }

    /// A column. Its constraints are added to `constraints`.
    fn column(&self, column: tree::ColumnDef, constraints: &mut Vec<ConstraintDef>) -> Result<ColumnDef> {
        let name = self.name(&column.name);
        let ty = super::ast::TypeName { at: name.at, ..self.type_name(&column.data_type)? };
        let mut found = ColumnDef { name, ty, not_null: false, default: None, identity: None, generated: None };
        for tree::ColumnOptionDef { name: constraint, option } in column.options {
            let name = || constraint.as_ref().map(super::expr::fold);
            let own = |deferrable: Option<bool>| {
                let columns = vec![found.name.clone()];
                KeyDef { name: name(), columns, included: Vec::new(), deferrable }
            };
            match option {
                tree::ColumnOption::Null => {}
                tree::ColumnOption::NotNull => found.not_null = true,
                tree::ColumnOption::Default(expr) => found.default = Some(self.default(expr)?),
                tree::ColumnOption::PrimaryKey(key) => {
                    let deferrable = timing_of(key.characteristics, found.name.at)?;
                    constraints.push(ConstraintDef::Primary(own(deferrable)));
                }
                tree::ColumnOption::Unique(key) => {
                    let deferrable = timing_of(key.characteristics, found.name.at)?;
                    constraints.push(ConstraintDef::Unique(own(deferrable)));
                }
                tree::ColumnOption::ForeignKey(mut key) => {
                    key.columns = vec![column.name.clone()];
                    key.name = key.name.or(constraint);
                    constraints.push(ConstraintDef::Foreign(self.foreign(key)?));
                }
                tree::ColumnOption::Check(mut check) => {
                    check.name = check.name.or(constraint);
                    constraints.push(ConstraintDef::Check(self.check(check, found.name.at)?));
                }
                tree::ColumnOption::Generated {
                    generated_as: as_ @ (tree::GeneratedAs::Always | tree::GeneratedAs::ByDefault),
                    sequence_options,
                    generation_expr: None,
                    ..
                } => {
                    let options = self.sequence_options(sequence_options.unwrap_or_default())?;
                    found.identity = Some(Identity { is_always: as_ == tree::GeneratedAs::Always, options });
                    found.not_null = true;
                }
                tree::ColumnOption::Generated {
                    generated_as: tree::GeneratedAs::Always | tree::GeneratedAs::ExpStored,
                    sequence_options: None,
                    generation_expr: Some(expr),
                    generation_expr_mode: Some(tree::GeneratedExpressionMode::Stored),
                    ..
                } => {
                    if found.generated.is_some() {
                        return Err(super::multiple_generations(&found.name));
                    }
                    found.generated = Some(self.default(expr)?);
                }
                tree::ColumnOption::Generated { .. } => return Err(refuse("a generated column", found.name.at)),
                tree::ColumnOption::Collation(collation) => self.bytes_collation(&collation)?,
                other => return Err(refuse(format!("the column option {other}"), found.name.at)),
            }
        }
        Ok(found)
    }

    pub(super) fn default(&self, expr: tree::Expr) -> Result<Default> {
        let text = super::standard::written(super::names::lowered(&expr.to_string()));
        Ok(Default { text, expr: self.expr(expr)? })
    }

    fn check(&self, check: tree::CheckConstraint, at: Position) -> Result<CheckDef> {
        let tree::CheckConstraint { name, expr, no_inherit, enforced } = check;
        self.refuse_other(enforced == Some(false), "a constraint that is NOT ENFORCED")?;
        let mut expr = *expr;
        while let tree::Expr::Nested(inner) = expr {
            expr = *inner;
        }
        Ok(CheckDef { name: name.as_ref().map(super::expr::fold), check: self.default(expr)?, at, no_inherit })
    }

    fn foreign(&self, key: tree::ForeignKeyConstraint) -> Result<ForeignDef> {
        let tree::ForeignKeyConstraint {
            name,
            index_name,
            columns,
            foreign_table,
            referred_columns,
            on_delete,
            on_update,
            match_kind,
            characteristics,
        } = key;
        let parent = self.object(&foreign_table)?;
        self.refuse_other(index_name.is_some(), "this form of a foreign key")?;
        let action = |action: Option<tree::ReferentialAction>| match action {
            None | Some(tree::ReferentialAction::NoAction) => KeyAction::NoAction,
            Some(tree::ReferentialAction::Restrict) => KeyAction::Restrict,
            Some(tree::ReferentialAction::Cascade) => KeyAction::Cascade,
            Some(tree::ReferentialAction::SetNull) => KeyAction::SetNull,
            Some(tree::ReferentialAction::SetDefault) => KeyAction::SetDefault,
        };
        let is_full = match match_kind {
            None | Some(tree::ConstraintReferenceMatchKind::Simple) => false,
            Some(tree::ConstraintReferenceMatchKind::Full) => true,
            Some(tree::ConstraintReferenceMatchKind::Partial) => {
                return Err(refuse("MATCH PARTIAL", parent.at));
            }
        };
        let deferrable = timing_of(characteristics, parent.at)?;
        let (is_deferrable, is_deferred) = (deferrable.is_some(), deferrable == Some(true));
        Ok(ForeignDef {
            name: name.as_ref().map(super::expr::fold),
            columns: columns.iter().map(|column| self.name(column)).collect(),
            parent,
            parent_columns: referred_columns.iter().map(|column| self.name(column)).collect(),
            on_delete: action(on_delete),
            on_update: action(on_update),
            is_full,
            is_deferrable,
            is_deferred,
        })
    }

    fn constraint(&self, constraint: tree::TableConstraint, at: Position) -> Result<ConstraintDef> {
        match constraint {
            tree::TableConstraint::PrimaryKey(tree::PrimaryKeyConstraint {
                name,
                index_name: None,
                index_type: None,
                columns,
                include,
                index_options,
                characteristics,
            }) if index_options.is_empty() => Ok(ConstraintDef::Primary(KeyDef {
                name: name.as_ref().map(super::expr::fold),
                columns: self.index_columns(columns)?,
                included: include.iter().map(|column| self.name(column)).collect(),
                deferrable: timing_of(characteristics, at)?,
            })),
            tree::TableConstraint::Unique(tree::UniqueConstraint {
                name,
                index_name: None,
                index_type_display: _,
                index_type: None,
                columns,
                include,
                index_options,
                characteristics,
                nulls_distinct: tree::NullsDistinctOption::None | tree::NullsDistinctOption::Distinct,
            }) if index_options.is_empty() => Ok(ConstraintDef::Unique(KeyDef {
                name: name.as_ref().map(super::expr::fold),
                columns: self.index_columns(columns)?,
                included: include.iter().map(|column| self.name(column)).collect(),
                deferrable: timing_of(characteristics, at)?,
            })),
            tree::TableConstraint::ForeignKey(key) => self.foreign(key).map(ConstraintDef::Foreign),
            tree::TableConstraint::Check(check) => self.check(check, at).map(ConstraintDef::Check),
            other => Err(refuse(format!("the constraint {other}"), at)),
        }
    }

    pub(super) fn create_index(&self, index: tree::CreateIndex) -> Result<Statement> {
        let tree::CreateIndex {
            name,
            table_name,
            using,
            columns,
            unique,
            concurrently: _,
            r#async,
            if_not_exists,
            include,
            nulls_distinct,
            with,
            predicate,
            index_options,
            alter_options,
        } = index;
        let table = self.object(&table_name)?;
        let is_btree = matches!(using, None | Some(tree::IndexType::BTree));
        self.refuse_other(!is_btree, "an index that is no btree")?;
        self.refuse_other(predicate.is_some(), "a partial index")?;
        let is_other = r#async || nulls_distinct == Some(false) || !with.is_empty();
        self.refuse_other(
            is_other || !index_options.is_empty() || !alter_options.is_empty(),
            "this form of CREATE INDEX",
        )?;
        let name = name.map(|name| self.single(&name)).transpose()?;
        let other = |column: &tree::IndexColumn| {
            let options = &column.column.options;
            matches!(options.sort, Some(tree::OrderBySort::Desc)) || options.nulls_first.is_some()
        };
        let is_descending = columns.iter().any(other);
        let columns = self.index_columns(columns)?;
        let included = include.iter().map(|column| self.name(column)).collect();
        Ok(Statement::CreateIndex { name, table, columns, included, is_unique: unique, if_not_exists, is_descending })
    }

    pub(super) fn alter_table(&self, table: tree::AlterTable) -> Result<Statement> {
        let tree::AlterTable { name, if_exists, only, operations, location, on_cluster, table_type, end_token: _ } =
            table;
        let table = ObjectName { is_only: only, ..self.object(&name)? };
        self.refuse_other(
            location.is_some() || on_cluster.is_some() || table_type.is_some(),
            "this form of ALTER TABLE",
        )?;
        let actions = operations.into_iter().map(|operation| self.alter(operation, table.at)).collect::<Result<_>>()?;
        Ok(Statement::AlterTable { table, if_exists, actions })
    }

    fn alter(&self, operation: tree::AlterTableOperation, at: Position) -> Result<Alter> {
        use tree::AlterTableOperation as A;
        let is_cascade = |behavior: &Option<tree::DropBehavior>| *behavior == Some(tree::DropBehavior::Cascade);
        Ok(match operation {
            A::AddConstraint { constraint, not_valid } => {
                let constraint = self.constraint(constraint, at)?;
                if not_valid && matches!(constraint, ConstraintDef::Primary(_) | ConstraintDef::Unique(_)) {
                    let kind = if matches!(constraint, ConstraintDef::Primary(_)) { "PRIMARY KEY" } else { "UNIQUE" };
                    let message = format!("{kind} constraints cannot be marked NOT VALID");
                    return Err(Error::new(lodestone_sql_types::SqlState::FEATURE_NOT_SUPPORTED, message).at(at));
                }
                Alter::AddConstraint { constraint, is_valid: !not_valid }
            }
            A::ValidateConstraint { name } => Alter::Validate(self.name(&name)),
            A::AddColumn { column_keyword: _, if_not_exists, column_def, column_position: None } => {
                let mut constraints = Vec::new();
                let column = Box::new(self.column(column_def, &mut constraints)?);
                Alter::AddColumn { column, constraints, if_not_exists }
            }
            A::DropConstraint { if_exists, name, drop_behavior } => {
                Alter::DropConstraint { name: self.name(&name), if_exists, is_cascade: is_cascade(&drop_behavior) }
            }
            A::DropColumn { has_column_keyword: _, mut column_names, if_exists, drop_behavior } => {
                match (column_names.pop(), column_names.is_empty()) {
                    (Some(name), true) => {
                        Alter::DropColumn { name: self.name(&name), if_exists, is_cascade: is_cascade(&drop_behavior) }
                    }
                    _ => return Err(refuse("this form of DROP COLUMN", at)),
                }
            }
            A::RenameColumn { old_column_name, new_column_name } => {
                Alter::RenameColumn { from: self.name(&old_column_name), to: super::expr::fold(&new_column_name) }
            }
            A::RenameTable { table_name: tree::RenameTableNameKind::To(name) } => {
                Alter::RenameTable(self.single(&name)?)
            }
            A::RenameConstraint { old_name, new_name } => {
                Alter::RenameConstraint { from: self.name(&old_name), to: super::expr::fold(&new_name) }
            }
            A::AlterColumn { column_name, op } => self.alter_column(self.name(&column_name), op)?,
            A::OwnerTo { new_owner } => Alter::Owner(match new_owner {
                tree::Owner::Ident(name) => Some(self.name(&name)),
                tree::Owner::CurrentRole | tree::Owner::CurrentUser | tree::Owner::SessionUser => None,
            }),
            A::SetOptionsParens { options } => match self.placing(&tree::CreateTableOptions::With(options))? {
                placing if placing == Placing::default() => Alter::Nothing,
                placing => Alter::Place(placing),
            },
            other => {
                let text = other.to_string();
                let words: Vec<_> = text.split_whitespace().take(2).collect();
                return Err(refuse(format!("ALTER TABLE .. {}", words.join(" ")), at));
            }
        })
    }

    fn alter_column(&self, column: super::ast::Name, operation: tree::AlterColumnOperation) -> Result<Alter> {
        use tree::AlterColumnOperation as O;
        Ok(match operation {
            O::SetNotNull => Alter::SetNotNull { column, is_set: true },
            O::DropNotNull => Alter::SetNotNull { column, is_set: false },
            O::SetDefault { value } => Alter::SetDefault { column, default: Some(self.default(value)?) },
            O::DropDefault => Alter::SetDefault { column, default: None },
            O::SetDataType { data_type, using, had_set: _ } => {
                let ty = super::ast::TypeName { at: column.at, ..self.type_name(&data_type)? };
                Alter::SetType { column, ty, using: using.map(|using| self.expr(using)).transpose()? }
            }
            O::AddGenerated { generated_as, sequence_options } => {
                let options = self.sequence_options(sequence_options.unwrap_or_default())?;
                let is_always = generated_as == Some(tree::GeneratedAs::Always);
                Alter::AddIdentity { column, identity: Identity { is_always, options } }
            }
            other => return Err(refuse(format!("ALTER COLUMN .. {other}"), column.at)),
        })
    }

    pub(super) fn sequence_options(&self, list: Vec<tree::SequenceOptions>) -> Result<SequenceOptions> {
        use tree::SequenceOptions as O;
        let mut found = SequenceOptions::default();
        for option in list {
            match option {
                O::DataType(ty) => found.ty = Some(self.type_name(&ty)?),
                O::IncrementBy(expr, _) => found.increment = Some(self.integer(expr)?),
                O::MinValue(expr) => found.minimum = Some(expr.map(|expr| self.integer(expr)).transpose()?),
                O::MaxValue(expr) => found.maximum = Some(expr.map(|expr| self.integer(expr)).transpose()?),
                O::StartWith(expr, _) => found.start = Some(self.integer(expr)?),
                O::Cache(expr) => found.cache = Some(self.integer(expr)?),
                // The tree has the word NO as true.
                O::Cycle(is_no) => found.is_cycle = Some(!is_no),
                O::OwnedBy(None) => found.owner = Some(None),
                O::OwnedBy(Some(name)) => {
                    let column = self.object(&name);
                    let (table, column) = match column {
                        Ok(super::ast::ObjectName { schema: Some(table), name, at, is_only: _ }) => {
                            (super::ast::ObjectName { schema: None, name: table, at, is_only: false }, name)
                        }
                        Ok(super::ast::ObjectName { at, .. }) => return Err(refuse("OWNED BY of this name", at)),
                        Err(_) => self.table_column(&name)?,
                    };
                    found.owner = Some(Some((table, column)));
                }
            }
        }
        Ok(found)
    }

    fn integer(&self, expr: tree::Expr) -> Result<i64> {
        match self.expr(expr)? {
            Expr::Literal(Literal::Number(text), at) => {
                text.parse().map_err(|_| refuse("this number of a sequence", at))
            }
            other => Err(refuse("a number of a sequence that is no literal", other.at())),
        }
    }
}

/// When a constraint is tested. `None`: at once; else it is deferrable, and this says whether it is INITIALLY DEFERRED.
fn timing_of(characteristics: Option<tree::ConstraintCharacteristics>, at: Position) -> Result<Option<bool>> {
    let Some(tree::ConstraintCharacteristics { deferrable, initially, enforced }) = characteristics else {
        return Ok(None);
    };
    if enforced == Some(false) {
        return Err(refuse("a constraint that is NOT ENFORCED", at));
    }
    timing(deferrable, initially == Some(tree::DeferrableInitial::Deferred), at)
}

/// As [`timing_of`], of the words that are there.
pub(super) fn timing(deferrable: Option<bool>, is_deferred: bool, at: Position) -> Result<Option<bool>> {
    if is_deferred && deferrable == Some(false) {
        let message = "constraint declared INITIALLY DEFERRED must be DEFERRABLE";
        return Err(Error::new(lodestone_sql_types::SqlState::SYNTAX_ERROR, message).at(at));
    }
    Ok(deferrable.unwrap_or(is_deferred).then_some(is_deferred))
}
