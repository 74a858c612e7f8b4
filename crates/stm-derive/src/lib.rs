//! `#[derive(PmObject)]`: the description of a type of persistent objects.
//!
//! The macro implements `lodestone_stm::PmObject` for a struct with named fields, `repr(C)`, and zerocopy's
//! `FromBytes`, `IntoBytes`, `Immutable` and `KnownLayout`. An open compares three things with the pool:
//!
//! - the name: the struct's own, or `#[pm(name = "..")]`;
//! - the version: `#[pm(version = n)]`, 1 otherwise;
//! - the list of fields with their types.
//!
//! A struct that derives it may be a field of another one. `#[derive(PmEnum)]` does the same for enums without fields:
//! the list of variants with their numbers is part of the layout.
//!
//! `#[pm_object]` replaces all of that by one line above a struct or an enum. The generated code names the
//! transactional memory by the path under which the user's crate reaches it. This is `lodestone-stm` or the facade
//! `lodestone`, renamed or not, or the path in `#[pm(crate = "path")]`.

use lodestone_derive_path::library_path;
use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Fields, LitInt, LitStr, Path, Result, Type, parse_macro_input};

/// Derives `PmObject`: see the crate.
#[proc_macro_derive(PmObject, attributes(pm))]
pub fn derive_pm_object(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// Derives the use of an enum without fields as a type of fields: see the crate.
#[proc_macro_derive(PmEnum, attributes(pm))]
pub fn derive_pm_enum(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand_enum(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// Makes a struct with named fields a type of persistent objects: `repr(C)`, zerocopy's four traits and `PmObject`. The
/// user's crate does not need zerocopy as a dependency. Takes the same arguments as `#[pm(..)]`. An enum without fields
/// becomes a type of fields, of one byte unless it has `#[repr(..)]`.
#[proc_macro_attribute]
pub fn pm_object(arguments: proc_macro::TokenStream, input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let item = parse_macro_input!(input as DeriveInput);
    declare(&arguments.into(), &item).unwrap_or_else(Error::into_compile_error).into()
}

fn declare(arguments: &TokenStream, item: &DeriveInput) -> Result<TokenStream> {
    let pm = (!arguments.is_empty()).then(|| quote! { #[pm(#arguments)] });
    let described = attributes(&syn::parse2(quote! { #pm #item })?)?;
    let stm = &described.stm;
    let zerocopy = quote! { #stm::zerocopy }.to_string().replace(' ', "");
    let is_enum = matches!(item.data, Data::Enum(_));
    let own = if is_enum {
        quote! { #stm::PmEnum }
    } else {
        quote! { #stm::PmObject }
    };
    let repr = match (is_enum, has_repr(item)) {
        (_, true) => None,
        (true, false) => Some(quote! { #[repr(u8)] }),
        (false, false) => Some(quote! { #[repr(C)] }),
    };
    Ok(quote! {
        #[derive(
            #stm::zerocopy::FromZeros, #stm::zerocopy::IntoBytes, #stm::zerocopy::Immutable, #stm::zerocopy::KnownLayout, #own,
        )]
        #[zerocopy(crate = #zerocopy)]
        #pm
        #repr
        #item
    })
}

fn has_repr(item: &DeriveInput) -> bool {
    item.attrs.iter().any(|attribute| attribute.path().is_ident("repr"))
}

/// The arguments of `#[pm(..)]` on a type.
struct Described {
    name: String,
    version: u32,
    /// Path of the transactional memory.
    stm: Path,
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
    let stm = stm.map_or_else(|| library_path("lodestone-stm", "stm"), Ok)?;
    Ok(Described { name, version, stm })
}

/// The replacement for a type that no field can have, if there is an obvious one.
fn cure(kind: &Type) -> Option<String> {
    let name = match kind {
        Type::Reference(_) | Type::Ptr(_) => "&".to_owned(),
        Type::Path(path) => path.path.segments.last()?.ident.to_string(),
        Type::Tuple(_) => "()".to_owned(),
        _ => return None,
    };
    let cure = match name.as_str() {
        "Option" => "use `PmOption<T>`, or `PmPtr<T>`, which may be null",
        "&" | "Box" | "Rc" | "Arc" => "an address of this process means nothing to the next one; use `PmPtr<T>`",
        "String" | "Vec" | "str" => "use `PmBytes`, the blob or a collection of lodestone-collections, or an array",
        "usize" | "isize" => "its size differs between machines; use `u64` or `i64`",
        "char" => "use `u32`, and `char::from_u32` when it is read",
        "()" => "name the parts: use a struct with `#[pm_object]`",
        _ => return None,
    };
    let shown = quote! { #kind }.to_string().replace(' ', "");
    Some(format!("a field of a persistent object cannot be a `{shown}`: {cure}"))
}

fn expand_enum(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Enum(data) = &input.data else {
        return Err(Error::new(input.span(), "PmEnum is for enums; write `#[derive(PmObject)]` above a struct"));
    };
    if !input.generics.params.is_empty() {
        return Err(Error::new(input.generics.span(), "an enum in a field has no parameters; write an enum for each"));
    }
    if !has_repr(input) {
        let help =
            "write `#[repr(u8)]` above the enum: it fixes the numbers in the pool; `#[pm_object]` does it by itself";
        return Err(Error::new(input.span(), help));
    }
    if let Some(variant) = data.variants.iter().find(|variant| !matches!(variant.fields, Fields::Unit)) {
        let help = "a variant in a pool holds no data: keep its data in fields of the struct, a `PmOption` each, or in a separate \
                    object under a `PmPtr`";
        return Err(Error::new(variant.span(), help));
    }
    let (ident, stm) = (&input.ident, attributes(input)?.stm);
    let names = data.variants.iter().map(|variant| &variant.ident);
    let texts = names.clone().map(ToString::to_string);
    Ok(quote! {
        impl #stm::PmField for #ident {
            fn layout() -> ::std::string::String {
                let variants = [#((#texts, Self::#names as i128)),*];
                let variants = variants.map(|(name, number)| ::std::format!("{name} = {number}"));
                ::std::format!("enum of {} bytes {{{}}}", ::core::mem::size_of::<Self>(), variants.join(", "))
            }
        }
    })
}

fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let data = match &input.data {
        Data::Struct(data) => data,
        Data::Enum(_) => {
            let help = "an enum cannot be an object by itself: write `#[pm_object]` above it, or `#[derive(PmEnum)]`, and keep it in a \
                        field of a struct";
            return Err(Error::new(input.span(), help));
        }
        Data::Union(_) => return Err(Error::new(input.span(), "PmObject is for structs; keep the bytes in an array")),
    };
    let Fields::Named(fields) = &data.fields else {
        let help = "give the fields names, as in `struct Account { cents: u64 }`: names are part of the layout that an open compares";
        return Err(Error::new(input.span(), help));
    };
    if !has_repr(input) {
        let help = "write `#[repr(C)]` above the struct: it fixes the field offsets; `#[pm_object]` does it by itself";
        return Err(Error::new(input.span(), help));
    }
    for field in &fields.named {
        if let Some(cure) = cure(&field.ty) {
            return Err(Error::new(field.ty.span(), cure));
        }
    }
    if !input.generics.params.is_empty() {
        let help = "a persistent type has no parameters, because its name means one layout; write a struct for each";
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
    let kinds = fields.named.iter().map(|field| &field.ty);
    let gaps = format!(
        "`{ident}` has gaps between or after its fields, which a pool must not hold: put large fields first, and fill the rest with a \
         field like `rest: [u8; 7]`"
    );
    let visits = fields.named.iter().map(|field| {
        let kind = &field.ty;
        quote! { <#kind as #stm::PmField>::visit_types(visitor); }
    });
    Ok(quote! {
        const _: () = ::core::assert!(
            ::core::mem::size_of::<#ident>() == 0 #(+ ::core::mem::size_of::<#kinds>())*,
            #gaps
        );

        impl #stm::PmField for #ident {
            fn layout() -> ::std::string::String {
                ::std::format!("({})", #stm::Layout::of::<Self>())
            }

            fn visit_types(visitor: &mut #stm::TypeVisitor<'_>) {
                <Self as #stm::PmObject>::visit_field_types(visitor);
            }
        }

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

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(item: &str) -> String {
        let input: DeriveInput = syn::parse_str(item).expect("an item");
        let outcome = if item.contains("enum Stored") { expand_enum(&input) } else { expand(&input) };
        outcome.expect_err("it is refused").to_string()
    }

    #[test]
    fn every_refusal_names_the_cure() {
        for (item, cure) in [
            ("#[repr(C)] struct A { a: Option<u64> }", "PmOption<T>"),
            ("#[repr(C)] struct A { a: std::option::Option<u64> }", "PmOption<T>"),
            ("#[repr(C)] struct A { a: String }", "PmBytes"),
            ("#[repr(C)] struct A { a: Vec<u8> }", "PmBytes"),
            ("#[repr(C)] struct A { a: Box<A> }", "PmPtr<T>"),
            ("#[repr(C)] struct A { a: &'static A }", "PmPtr<T>"),
            ("#[repr(C)] struct A { a: usize }", "`u64`"),
            ("#[repr(C)] struct A { a: char }", "`u32`"),
            ("#[repr(C)] struct A { a: (u64, u64) }", "struct with `#[pm_object]`"),
            ("struct A { a: u64 }", "#[repr(C)]"),
            ("#[repr(C)] struct A(u64);", "names"),
            ("#[repr(C)] struct A<T> { a: T }", "no parameters"),
            ("#[repr(C)] union A { a: u64 }", "array"),
            ("#[repr(u8)] enum A { B }", "#[pm_object]"),
            ("enum Stored { B }", "#[repr(u8)]"),
            ("#[repr(u8)] enum Stored { B(u64) }", "PmOption"),
        ] {
            let refusal = refusal(item);
            assert!(refusal.contains(cure), "{item}: {refusal}");
        }
    }
}
