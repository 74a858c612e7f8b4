//! The struct and its attributes, as the user wrote them, and the refusals.

use lodestone_derive_path::library_path;
use quote::quote;
use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::parse::Parse;
use syn::spanned::Spanned;
use syn::{
    Data, DeriveInput, Error, Field, Fields, GenericArgument, Ident, LitStr, Path, PathArguments, Result, Token, Type,
    parenthesized,
};

/// Most columns of a typed key: tuples of more have no implementations.
const KEY_COLUMNS_MAX: usize = 8;
const NAME_BYTES_MAX: usize = 128;

/// A column, or a field that is none.
pub struct FieldOf {
    pub field: Field,
    pub ident: Ident,
    /// The name of the column.
    pub name: String,
    pub is_skipped: bool,
}

/// A secondary index, with the names of its fields.
struct Index {
    name: Ident,
    fields: Vec<Ident>,
    is_unique: bool,
}

/// All of the struct.
pub struct Described {
    pub ident: Ident,
    pub table: String,
    pub library: Path,
    pub fields: Vec<FieldOf>,
    /// Numbers in `fields`.
    pub key: Vec<usize>,
    pub indexes: Vec<DescribedIndex>,
}

/// An index of the table.
pub struct DescribedIndex {
    pub name: String,
    /// Numbers in `fields`.
    pub columns: Vec<usize>,
    pub is_unique: bool,
}

/// The attributes of the struct.
#[derive(Default)]
struct Attributes {
    table: Option<LitStr>,
    library: Option<Path>,
    key: Option<Vec<Ident>>,
    indexes: Vec<Index>,
}

impl Described {
    /// # Errors
    /// Whatever the macro cannot make a row of. The message names the cure.
    pub fn read(input: &DeriveInput) -> Result<Self> {
        let fields = fields_of(input)?;
        let attributes = Attributes::read(input)?;
        let columns = || fields.iter().filter(|field| !field.is_skipped);
        for field in columns() {
            if let Some(cure) = cure(&field.field.ty) {
                return Err(Error::new(field.field.ty.span(), cure));
            }
            verify_name("column", &field.name, field.field.span())?;
            if columns().filter(|other| other.name == field.name).count() > 1 {
                let help = format!("two columns are called `{}`: write `#[row(name = \"..\")]` on one", field.name);
                return Err(Error::new(field.field.span(), help));
            }
        }
        let key = attributes.key.unwrap_or_default();
        if key.is_empty() {
            let help = "name the fields of the key: `#[row(key(id))]`, or `#[row(key(owner, id))]` for several";
            return Err(Error::new(input.ident.span(), help));
        }
        if let Some(extra) = key.get(KEY_COLUMNS_MAX) {
            let help = "a typed key has at most 8 columns: use the dynamic table, or a key of fewer columns";
            return Err(Error::new(extra.span(), help));
        }
        let key = numbers_of(&fields, &key, "key")?;
        let mut indexes: Vec<DescribedIndex> = Vec::new();
        for Index { name, fields: named, is_unique } in &attributes.indexes {
            let columns = numbers_of(&fields, named, "index")?;
            let text = name.unraw().to_string();
            if indexes.iter().any(|other| other.name == text) {
                return Err(Error::new(name.span(), format!("two indexes are called `{text}`: rename one")));
            }
            indexes.push(DescribedIndex { name: text, columns, is_unique: *is_unique });
        }
        let table = attributes.table.map_or_else(|| snake_case(&input.ident.unraw().to_string()), |name| name.value());
        verify_name("table", &table, input.ident.span())?;
        let library = attributes.library.map_or_else(|| library_path("lodestone-engine", "engine"), Ok)?;
        Ok(Self { ident: input.ident.clone(), table, library, fields, key, indexes })
    }
}

impl Attributes {
    fn read(input: &DeriveInput) -> Result<Self> {
        let mut found = Self::default();
        for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("row")) {
            attribute.parse_nested_meta(|meta| found.add(&meta))?;
        }
        Ok(found)
    }

    fn add(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        if meta.path.is_ident("table") {
            self.table = Some(meta.value()?.parse()?);
        } else if meta.path.is_ident("crate") {
            self.library = Some(meta.value()?.parse::<LitStr>()?.parse()?);
        } else if meta.path.is_ident("key") {
            self.key = Some(idents(meta)?);
        } else if meta.path.is_ident("index") || meta.path.is_ident("unique") {
            let is_unique = meta.path.is_ident("unique");
            meta.parse_nested_meta(|index| {
                let name = index.path.require_ident()?.clone();
                self.indexes.push(Index { name, fields: idents(&index)?, is_unique });
                Ok(())
            })?;
        } else {
            return Err(meta.error(
                "expected `table = \"..\"`, `key(field, ..)`, `index(name(field, ..))`, `unique(name(field, ..))` or \
                 `crate = \"path\"`",
            ));
        }
        Ok(())
    }
}

/// The identifiers in the parentheses after an attribute.
fn idents(meta: &ParseNestedMeta<'_>) -> Result<Vec<Ident>> {
    let names;
    parenthesized!(names in meta.input);
    Ok(names.parse_terminated(Ident::parse, Token![,])?.into_iter().collect())
}

fn fields_of(input: &DeriveInput) -> Result<Vec<FieldOf>> {
    let data = match &input.data {
        Data::Struct(data) => data,
        Data::Enum(_) => {
            let help =
                "a row has the same columns always: write a struct, with an `Option` for what only some rows have";
            return Err(Error::new(input.span(), help));
        }
        Data::Union(_) => return Err(Error::new(input.span(), "a row is a struct: keep the bytes in a `Vec<u8>`")),
    };
    let Fields::Named(fields) = &data.fields else {
        let help = "give the fields names, as in `struct Account { id: u64 }`: they are the names of the columns";
        return Err(Error::new(input.span(), help));
    };
    if !input.generics.params.is_empty() {
        let help = "a row has no parameters, because its table has one schema: write a struct for each";
        return Err(Error::new(input.generics.span(), help));
    }
    fields.named.iter().map(field_of).collect()
}

fn field_of(field: &Field) -> Result<FieldOf> {
    let ident = field.ident.clone().ok_or_else(|| Error::new(field.span(), "a field without a name"))?;
    let mut found = FieldOf { field: field.clone(), name: ident.unraw().to_string(), ident, is_skipped: false };
    for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("row")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("name") {
                found.name = meta.value()?.parse::<LitStr>()?.value();
            } else if meta.path.is_ident("skip") {
                found.is_skipped = true;
            } else {
                return Err(meta.error("expected `name = \"..\"` or `skip`; key and indexes go above the struct"));
            }
            Ok(())
        })?;
    }
    Ok(found)
}

/// The numbers of the fields with these names.
fn numbers_of(fields: &[FieldOf], names: &[Ident], what: &str) -> Result<Vec<usize>> {
    let mut numbers = Vec::new();
    for name in names {
        let found = fields.iter().position(|field| field.ident == *name && !field.is_skipped);
        let Some(number) = found else {
            let all: Vec<String> =
                fields.iter().filter(|field| !field.is_skipped).map(|field| format!("`{}`", field.ident)).collect();
            let help =
                format!("no field that is a column is called `{name}`: the {what} names fields, of {}", all.join(", "));
            return Err(Error::new(name.span(), help));
        };
        if numbers.contains(&number) {
            return Err(Error::new(name.span(), format!("the {what} names `{name}` twice: leave one out")));
        }
        numbers.push(number);
    }
    Ok(numbers)
}

/// A name that a schema and its text can have.
fn verify_name(what: &str, name: &str, span: proc_macro2::Span) -> Result<()> {
    let is_bad = |found: char| found.is_whitespace() || matches!(found, ',' | '(' | ')');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(is_bad) {
        let help =
            format!("the name of a {what} has 1 to {NAME_BYTES_MAX} bytes, without blanks, commas and parentheses");
        return Err(Error::new(span, help));
    }
    Ok(())
}

/// `OrderLine` as `order_line`.
fn snake_case(name: &str) -> String {
    let mut found = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !found.is_empty() {
            found.push('_');
        }
        found.extend(letter.to_lowercase());
    }
    found
}

/// The replacement for a type that no column has, if there is an obvious one.
fn cure(kind: &Type) -> Option<String> {
    let (name, argument) = match kind {
        Type::Reference(_) | Type::Ptr(_) => ("&".to_owned(), None),
        Type::Path(path) => {
            let last = path.path.segments.last()?;
            (last.ident.to_string(), argument_of(&last.arguments))
        }
        Type::Tuple(_) => ("()".to_owned(), None),
        Type::Array(_) => ("[]".to_owned(), None),
        _ => return None,
    };
    let is_bytes = argument.as_deref() == Some("u8");
    let cure = match name.as_str() {
        "Vec" if is_bytes => return None,
        "Option" if argument.as_deref().is_some_and(|inner| inner.starts_with("Option")) => {
            "null is there once: use one `Option`"
        }
        "u8" | "i8" => "use `i16`",
        "u16" => "use `i32`",
        "u32" | "usize" => "use `u64`",
        "isize" => "use `i64`",
        "u128" | "i128" => "use `Decimal<0>`, which has the range of `i128`",
        "f32" => "use `f64`",
        "char" | "str" => "use `String`",
        "&" | "Cow" => "a row owns its values; use `String` or `Vec<u8>`",
        "Box" | "Rc" | "Arc" => "a row owns its values; use the type inside",
        "[]" => "use `Vec<u8>` for bytes, and `Uuid` for 16 of them",
        "Vec" | "HashMap" | "BTreeMap" | "HashSet" | "BTreeSet" | "VecDeque" => {
            "use a table of its own, whose key begins with the key of this one"
        }
        "SystemTime" | "Instant" | "DateTime" | "OffsetDateTime" => "use `Timestamp`",
        "Duration" => "use an `i64`, with the unit in its name",
        "NaiveDate" => "use `Date`",
        "()" => "make a field of each part",
        _ => return None,
    };
    let shown = quote! { #kind }.to_string().replace(' ', "");
    Some(format!("a column cannot be a `{shown}`: {cure}"))
}

/// The first type between angle brackets, by its last name.
fn argument_of(arguments: &PathArguments) -> Option<String> {
    let PathArguments::AngleBracketed(arguments) = arguments else { return None };
    match arguments.args.first()? {
        GenericArgument::Type(Type::Path(path)) => path.path.segments.last().map(|last| last.ident.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_names_the_cure() {
        for (item, cure) in [
            ("struct A { a: u64 }", "#[row(key(id))]"),
            ("#[row(key())] struct A { a: u64 }", "#[row(key(id))]"),
            ("#[row(key(b))] struct A { a: u64, #[row(skip)] b: u64 }", "called `b`: the key names fields, of `a`"),
            ("#[row(key(a, a))] struct A { a: u64 }", "names `a` twice"),
            ("#[row(key(a, b, c, d, e, f, g, h, i))] struct A { a: u64 }", "at most 8 columns"),
            ("#[row(key(a), index(i(b)), unique(i(a)))] struct A { a: u64, b: u64 }", "two indexes are called `i`"),
            ("#[row(key(a), index(i(b, b)))] struct A { a: u64, b: u64 }", "names `b` twice"),
            ("#[row(key(a), index(by_b(c)))] struct A { a: u64, b: u64 }", "the index names fields, of `a`, `b`"),
            ("#[row(key(a), placement = memory)] struct A { a: u64 }", "expected `table = "),
            ("#[row(key(a))] struct A { #[row(key)] a: u64 }", "expected `name = "),
            ("#[row(key(a))] struct A { a: u64, #[row(name = \"a\")] b: u64 }", "two columns are called `a`"),
            ("#[row(key(a))] struct A { #[row(name = \"a b\")] a: u64 }", "without blanks"),
            ("#[row(key(a), table = \"\")] struct A { a: u64 }", "1 to 128 bytes"),
            ("#[row(key(a))] struct A(u64);", "names of the columns"),
            ("#[row(key(a))] struct A<T> { a: T }", "no parameters"),
            ("#[row(key(a))] enum A { A }", "with an `Option`"),
            ("#[row(key(a))] union A { a: u64 }", "Vec<u8>"),
            ("#[row(key(a))] struct A { a: u32 }", "use `u64`"),
            ("#[row(key(a))] struct A { a: i128 }", "Decimal<0>"),
            ("#[row(key(a))] struct A { a: &'static str }", "`String`"),
            ("#[row(key(a))] struct A { a: Option<Option<u64>> }", "one `Option`"),
            ("#[row(key(a))] struct A { a: Vec<u64> }", "a table of its own"),
            ("#[row(key(a))] struct A { a: std::time::SystemTime }", "`Timestamp`"),
            ("#[row(key(a))] struct A { a: [u8; 16] }", "`Uuid`"),
            ("#[row(key(a))] struct A { a: (u64, u64) }", "a field of each part"),
        ] {
            let input: DeriveInput = syn::parse_str(item).expect("an item");
            let refusal = Described::read(&input).err().expect(item).to_string();
            assert!(refusal.contains(cure), "{item}: {refusal}");
        }
    }

    #[test]
    fn names_are_the_fields_own_or_those_of_attributes() {
        let item = "#[row(key(r#type, a))] struct OrderLine { a: Vec<u8>, r#type: Option<u64>, #[row(skip)] c: char,
            #[row(name = \"cents\")] d: i64 }";
        let described = Described::read(&syn::parse_str(item).expect("an item")).expect("a row");
        let names: Vec<&str> = described.fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!((described.table.as_str(), described.key), ("order_line", vec![1, 0]));
        assert_eq!(names, ["a", "type", "c", "cents"]);
    }
}
