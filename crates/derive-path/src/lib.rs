//! How a crate that uses a derive macro reaches the library that the macro is for.
//!
//! Generated code must name the library by the name that it has in the user's manifest. This is the library itself,
//! renamed or not, or else a module of the facade `lodestone`.

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::Span;
use quote::{format_ident, quote};
use syn::{Path, Result};

/// The path of the library `package`, for the crate that is being compiled. The facade has it as `module`.
///
/// ```
/// use quote::quote;
///
/// // A crate that depends on neither of both, as this one, gets the library's own name.
/// let path = lodestone_derive_path::library_path("lodestone-engine", "engine")?;
/// assert_eq!(quote! { #path }.to_string(), ":: lodestone_engine");
/// # Ok::<(), syn::Error>(())
/// ```
///
/// # Errors
/// When `module` is no name.
pub fn library_path(package: &str, module: &str) -> Result<Path> {
    let found = |package: &str| match crate_name(package) {
        // Its own tests and examples see the library under its name. So does the library, by `extern crate self`.
        Ok(FoundCrate::Itself) => Some(package.replace('-', "_")),
        Ok(FoundCrate::Name(name)) => Some(name),
        Err(_) => None,
    };
    let ident = |name: &str| format_ident!("{name}", span = Span::call_site());
    if let Some(name) = found(package) {
        let name = ident(&name);
        return syn::parse2(quote! { ::#name });
    }
    if let Some(facade) = found("lodestone") {
        let (facade, module) = (ident(&facade), ident(module));
        return syn::parse2(quote! { ::#facade::#module });
    }
    let name = ident(&package.replace('-', "_"));
    syn::parse2(quote! { ::#name })
}
