//! `#[derive(PmObject)]`: what a type of persistent objects says about itself.
//!
//! The macro implements `lodestone_stm::PmObject` for a struct with named fields, `repr(C)`, and zerocopy's `FromBytes`,
//! `IntoBytes`, `Immutable` and `KnownLayout`. Name (the struct's own, or `#[pm(name = "..")]`), version
//! (`#[pm(version = n)]`, 1 otherwise) and the list of fields with their types are what an open compares with the pool.

use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Fields, LitInt, LitStr, Result, parse_macro_input};

/// See the crate.
#[proc_macro_derive(PmObject, attributes(pm))]
pub fn derive_pm_object(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// Name and version from `#[pm(..)]`.
fn attributes(input: &DeriveInput) -> Result<(String, u32)> {
    let mut name = input.ident.to_string();
    let mut version = 1;
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("pm")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("name") {
                name = meta.value()?.parse::<LitStr>()?.value();
            } else if meta.path.is_ident("version") {
                version = meta.value()?.parse::<LitInt>()?.base10_parse()?;
            } else {
                return Err(meta.error("expected `name = \"..\"` or `version = number`"));
            }
            Ok(())
        })?;
    }
    if name.is_empty() || name.len() > 64 {
        return Err(Error::new(input.span(), "the name of a persistent type has 1 to 64 bytes"));
    }
    Ok((name, version))
}

fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.span(), "PmObject is for structs; keep the variant of an enum in a field"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new(input.span(), "PmObject is for structs with named fields"));
    };
    let (name, version) = attributes(input)?;
    let ident = &input.ident;
    let (impl_generics, type_generics, where_clause) = input.generics.split_for_impl();
    let lines = fields.named.iter().map(|field| {
        let field_ident = field.ident.as_ref();
        let field_name = field_ident.map(ToString::to_string).unwrap_or_default();
        let kind = &field.ty;
        quote! { layout.field::<#kind>(#field_name, ::core::mem::offset_of!(Self, #field_ident)); }
    });
    let visits = fields.named.iter().map(|field| {
        let kind = &field.ty;
        quote! { <#kind as ::lodestone_stm::PmField>::visit_types(visitor); }
    });
    Ok(quote! {
        impl #impl_generics ::lodestone_stm::PmObject for #ident #type_generics #where_clause {
            const NAME: &'static str = #name;
            const VERSION: u32 = #version;

            fn describe(layout: &mut ::lodestone_stm::Layout) {
                #(#lines)*
            }

            fn visit_field_types(visitor: &mut ::lodestone_stm::TypeVisitor<'_>) {
                #(#visits)*
            }

            fn checked_by() -> &'static ::lodestone_stm::CheckedBy {
                static CHECKED_BY: ::lodestone_stm::CheckedBy = ::lodestone_stm::CheckedBy::new();
                &CHECKED_BY
            }
        }
    })
}
