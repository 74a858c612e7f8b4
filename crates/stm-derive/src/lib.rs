//! `#[derive(PmObject)]`: what a type of persistent objects says about itself.
//!
//! The macro implements `lodestone_stm::PmObject` for a struct with named fields, `repr(C)`, and zerocopy's `FromBytes`,
//! `IntoBytes`, `Immutable` and `KnownLayout`. Name (the struct's own, or `#[pm(name = "..")]`), version
//! (`#[pm(version = n)]`, 1 otherwise) and the list of fields with their types are what an open compares with the pool.
//!
//! `#[pm_object]` says all of that in one line. The generated code names the transactional memory by the way the user's crate
//! reaches it: `lodestone-stm` or the facade `lodestone`, renamed or not, or what `#[pm(crate = "path")]` says.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Fields, ItemStruct, LitInt, LitStr, Path, Result, parse_macro_input};

/// See the crate.
#[proc_macro_derive(PmObject, attributes(pm))]
pub fn derive_pm_object(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// Makes a struct with named fields a type of persistent objects: `repr(C)`, zerocopy's four traits and `PmObject`, without
/// zerocopy among the crate's own dependencies. Takes what `#[pm(..)]` takes.
#[proc_macro_attribute]
pub fn pm_object(arguments: proc_macro::TokenStream, input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let item = parse_macro_input!(input as ItemStruct);
    declare(&arguments.into(), &item).unwrap_or_else(Error::into_compile_error).into()
}

fn declare(arguments: &TokenStream, item: &ItemStruct) -> Result<TokenStream> {
    let pm = (!arguments.is_empty()).then(|| quote! { #[pm(#arguments)] });
    let described = attributes(&syn::parse2(quote! { #pm #item })?)?;
    let stm = &described.stm;
    let zerocopy = quote! { #stm::zerocopy }.to_string().replace(' ', "");
    Ok(quote! {
        #[derive(
            #stm::zerocopy::FromBytes, #stm::zerocopy::IntoBytes, #stm::zerocopy::Immutable, #stm::zerocopy::KnownLayout,
            #stm::PmObject,
        )]
        #[zerocopy(crate = #zerocopy)]
        #pm
        #[repr(C)]
        #item
    })
}

/// What `#[pm(..)]` says of a type.
struct Described {
    name: String,
    version: u32,
    /// Path of the transactional memory.
    stm: Path,
}

/// How the crate under compilation reaches the transactional memory.
fn stm_path() -> Result<Path> {
    let found = |package: &str, own: &str| match crate_name(package) {
        // Its own tests and examples see the library under its name; so does the library, by `extern crate self`.
        Ok(FoundCrate::Itself) => Some(own.to_owned()),
        Ok(FoundCrate::Name(name)) => Some(name),
        Err(_) => None,
    };
    let ident = |name: String| format_ident!("{name}", span = Span::call_site());
    if let Some(name) = found("lodestone-stm", "lodestone_stm").map(ident) {
        return syn::parse2(quote! { ::#name });
    }
    let facade = found("lodestone", "lodestone").map(ident);
    facade.map_or_else(|| syn::parse2(quote! { ::lodestone_stm }), |name| syn::parse2(quote! { ::#name::stm }))
}

/// Reads `#[pm(..)]`.
fn attributes(input: &DeriveInput) -> Result<Described> {
    let mut name = input.ident.to_string();
    let mut version = 1;
    let mut stm = None;
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("pm")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("name") {
                name = meta.value()?.parse::<LitStr>()?.value();
            } else if meta.path.is_ident("version") {
                version = meta.value()?.parse::<LitInt>()?.base10_parse()?;
            } else if meta.path.is_ident("crate") {
                stm = Some(meta.value()?.parse::<LitStr>()?.parse::<Path>()?);
            } else {
                return Err(meta.error("expected `name = \"..\"`, `version = number` or `crate = \"path\"`"));
            }
            Ok(())
        })?;
    }
    if name.is_empty() || name.len() > 64 {
        return Err(Error::new(input.span(), "the name of a persistent type has 1 to 64 bytes"));
    }
    let stm = stm.map_or_else(stm_path, Ok)?;
    Ok(Described { name, version, stm })
}

fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.span(), "PmObject is for structs; keep the variant of an enum in a field"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new(input.span(), "PmObject is for structs with named fields"));
    };
    if !input.generics.params.is_empty() {
        let help = "a persistent type has no parameters, its name stands for one layout; write a struct for each";
        return Err(Error::new(input.generics.span(), help));
    }
    let Described { name, version, stm } = attributes(input)?;
    let ident = &input.ident;
    let lines = fields.named.iter().map(|field| {
        let field_ident = field.ident.as_ref();
        let field_name = field_ident.map(ToString::to_string).unwrap_or_default();
        let kind = &field.ty;
        quote! { layout.field::<#kind>(#field_name, ::core::mem::offset_of!(Self, #field_ident)); }
    });
    let visits = fields.named.iter().map(|field| {
        let kind = &field.ty;
        quote! { <#kind as #stm::PmField>::visit_types(visitor); }
    });
    Ok(quote! {
        impl #stm::PmObject for #ident {
            const NAME: &'static str = #name;
            const VERSION: u32 = #version;

            fn describe(layout: &mut #stm::Layout) {
                #(#lines)*
            }

            fn visit_field_types(visitor: &mut #stm::TypeVisitor<'_>) {
                #(#visits)*
            }

            fn checked_by() -> &'static #stm::CheckedBy {
                static CHECKED_BY: #stm::CheckedBy = #stm::CheckedBy::new();
                &CHECKED_BY
            }
        }
    })
}
