//! Defaults and conditions are kept with the schemas of the names in them.

use lodestone_sql_types::Result;

use super::Definition;
use crate::parse::ast::{Alter, ColumnDef, ConstraintDef, Default};

impl Definition<'_> {
    /// Adds the schema to each name of an object of the database that has none.
    pub(super) fn qualify_all<'d>(&self, defaults: impl Iterator<Item = &'d mut Default>) -> Result<()> {
        for default in defaults {
            let text = self.catalog.qualified(&default.text);
            // The places of the written expression are those of errors, so it stays where it can.
            if text != default.text {
                *default = Default { expr: crate::parse::parse_expr(&text)?, text };
            }
        }
        Ok(())
    }

    pub(super) fn qualify_columns(&self, columns: &mut [ColumnDef]) -> Result<()> {
        columns.iter_mut().try_for_each(|column| {
            self.qualify_all(column.default.iter_mut())?;
            self.qualify_all(column.generated.iter_mut())
        })
    }

    pub(super) fn qualify_constraints(&self, constraints: &mut [ConstraintDef]) -> Result<()> {
        let checks = constraints.iter_mut().filter_map(|constraint| match constraint {
            ConstraintDef::Check(check) => Some(&mut check.check),
            _ => None,
        });
        self.qualify_all(checks)
    }

    pub(super) fn qualify_change(&self, action: &mut Alter) -> Result<()> {
        match action {
            Alter::AddColumn { column, constraints, .. } => {
                self.qualify_columns(std::slice::from_mut(&mut **column))?;
                self.qualify_constraints(constraints)
            }
            Alter::SetDefault { default, .. } => self.qualify_all(default.iter_mut()),
            Alter::AddConstraint { constraint, .. } => self.qualify_constraints(std::slice::from_mut(constraint)),
            _ => Ok(()),
        }
    }
}
