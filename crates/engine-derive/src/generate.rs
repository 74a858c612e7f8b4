//! The code for a struct.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::ext::IdentExt;

use crate::attributes::{Described, DescribedIndex, FieldOf};

/// The implementation of `TypedRow`, and the constants of the columns.
pub fn code(described: &Described) -> TokenStream {
    let Described { ident, table, library, fields, key, indexes } = described;
    let columns = || fields.iter().filter(|field| !field.is_skipped);
    let names: Vec<&str> = columns().map(|column| column.name.as_str()).collect();
    let kinds: Vec<_> = columns().map(|column| &column.field.ty).collect();
    let column_count = names.len();
    let idents = columns().map(|column| &column.ident);
    let key_names = key.iter().map(|number| &fields[*number].name);
    let key_kinds: Vec<_> = key.iter().map(|number| &fields[*number].field.ty).collect();
    let key_type = match key_kinds[..] {
        [one] => quote! { #one },
        _ => quote! { (#(#key_kinds),*) },
    };
    let indexes = indexes.iter().map(|DescribedIndex { name, columns, is_unique }| {
        let columns = columns.iter().map(|number| &fields[*number].name);
        let make = if *is_unique {
            quote! { unique }
        } else {
            quote! { index }
        };
        quote! { .#make(#name, [#(#columns),*]) }
    });
    let reads = fields.iter().map(|FieldOf { ident, name, is_skipped, .. }| match is_skipped {
        false => quote! { #ident: values.next(#name)? },
        true => quote! { #ident: ::core::default::Default::default() },
    });
    let constants = columns().enumerate().map(|(number, column)| {
        let (name, kind, vis) = (&column.name, &column.field.ty, &column.field.vis);
        let constant = format_ident!("{}", column.ident.unraw().to_string().to_uppercase(), span = column.ident.span());
        let text = format!("The column `{name}`.");
        quote! {
            #[doc = #text]
            #vis const #constant: #library::ColumnOf<Self, #kind> = #library::ColumnOf::new(#name, #number);
        }
    });
    quote! {
        #[allow(dead_code, reason = "a program may use some of its columns by name")]
        impl #ident {
            #(#constants)*
        }

        impl #library::TypedRow for #ident {
            type Key = #key_type;
            const TABLE: &'static str = #table;

            fn schema() -> #library::Schema {
                #library::Schema::new(#table) #(.column_of::<#kinds>(#names))* .key([#(#key_names),*]) #(#indexes)*
            }

            fn to_row(&self) -> #library::Row {
                <#library::Row as ::core::iter::FromIterator<#library::Value>>::from_iter(
                    [#(#library::ColumnType::to_value(&self.#idents)),*]
                )
            }

            fn from_row(row: #library::Row) -> #library::Result<Self> {
                let mut values = #library::RowValues::of::<Self>(row, #column_count)?;
                ::core::result::Result::Ok(Self { #(#reads),* })
            }
        }
    }
}
