//! The types of SQL, with the object identifiers, names and sizes of `PostgreSQL`.

use std::fmt;

use crate::composite::Composite;
use crate::enumeration::Enumeration;

/// A type.
///
/// ```
/// use lodestone_sql_types::Type;
///
/// assert_eq!((Type::Int4.oid(), Type::Int4.to_string()), (23, "integer".to_owned()));
/// assert_eq!(Type::of_oid(1043), Some(Type::Varchar));
/// assert_eq!(Type::named("int8"), Some(Type::Int8));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each has the name that PostgreSQL's catalog gives it")]
pub enum Type {
    Bool,
    Bytea,
    Char,
    Name,
    Int8,
    Int2,
    Int2Vector,
    Int4,
    Regproc,
    Text,
    Oid,
    OidVector,
    Float4,
    Float8,
    /// A literal without a type yet.
    Unknown,
    Bpchar,
    Varchar,
    Date,
    Timestamp,
    Timestamptz,
    Numeric,
    Regclass,
    Regtype,
    Regnamespace,
    Record,
    Void,
    BoolArray,
    CharArray,
    NameArray,
    Int2Array,
    Int4Array,
    TextArray,
    VarcharArray,
    Int8Array,
    Float8Array,
    OidArray,
    NumericArray,
    Time,
    Uuid,
    ByteaArray,
    BpcharArray,
    Float4Array,
    TimestampArray,
    DateArray,
    TimeArray,
    Timetz,
    TimetzArray,
    TimestamptzArray,
    UuidArray,
    Interval,
    IntervalArray,
    Json,
    JsonArray,
    Jsonb,
    JsonbArray,
    /// A type of the database with labels.
    Enum(Enumeration),
    EnumArray(Enumeration),
    /// A type of rows whose fields are known: one of the database, that of a table, or one without a name.
    Composite(Composite),
    CompositeArray(Composite),
}

/// A row of the table of types.
#[derive(Clone, Copy, Debug)]
pub struct TypeInfo {
    /// The type.
    pub ty: Type,
    /// Its number.
    pub oid: u32,
    /// Its name in the catalog.
    pub name: &'static str,
    /// Its name in messages.
    pub display: &'static str,
    /// Bytes of a value, -1: any number.
    pub len: i16,
    /// The category letter of the catalog.
    pub category: char,
    /// The type of its elements, if it is an array.
    pub element: Option<Type>,
    /// Its array type.
    pub array: Option<Type>,
}

macro_rules! types {
    ($($ty:ident $oid:literal $name:literal $display:literal $len:literal $category:literal $element:expr, $array:expr;)+) => {
        /// Every type.
        pub const TYPES: &[TypeInfo] = &[$(TypeInfo {
            ty: Type::$ty, oid: $oid, name: $name, display: $display, len: $len, category: $category,
            element: $element, array: $array,
        },)+];
    };
}

types! {
    Bool 16 "bool" "boolean" 1 'B' None, Some(Type::BoolArray);
    Bytea 17 "bytea" "bytea" -1 'U' None, Some(Type::ByteaArray);
    Char 18 "char" "\"char\"" 1 'Z' None, Some(Type::CharArray);
    Name 19 "name" "name" 64 'S' None, Some(Type::NameArray);
    Int8 20 "int8" "bigint" 8 'N' None, Some(Type::Int8Array);
    Int2 21 "int2" "smallint" 2 'N' None, Some(Type::Int2Array);
    Json 114 "json" "json" -1 'U' None, Some(Type::JsonArray);
    JsonArray 199 "_json" "json[]" -1 'A' Some(Type::Json), None;
    Int2Vector 22 "int2vector" "int2vector" -1 'A' Some(Type::Int2), None;
    Int4 23 "int4" "integer" 4 'N' None, Some(Type::Int4Array);
    Regproc 24 "regproc" "regproc" 4 'N' None, None;
    Text 25 "text" "text" -1 'S' None, Some(Type::TextArray);
    Oid 26 "oid" "oid" 4 'N' None, Some(Type::OidArray);
    OidVector 30 "oidvector" "oidvector" -1 'A' Some(Type::Oid), None;
    Float4 700 "float4" "real" 4 'N' None, Some(Type::Float4Array);
    Float8 701 "float8" "double precision" 8 'N' None, Some(Type::Float8Array);
    Unknown 705 "unknown" "unknown" -2 'X' None, None;
    BoolArray 1000 "_bool" "boolean[]" -1 'A' Some(Type::Bool), None;
    ByteaArray 1001 "_bytea" "bytea[]" -1 'A' Some(Type::Bytea), None;
    CharArray 1002 "_char" "\"char\"[]" -1 'A' Some(Type::Char), None;
    NameArray 1003 "_name" "name[]" -1 'A' Some(Type::Name), None;
    Int2Array 1005 "_int2" "smallint[]" -1 'A' Some(Type::Int2), None;
    Int4Array 1007 "_int4" "integer[]" -1 'A' Some(Type::Int4), None;
    TextArray 1009 "_text" "text[]" -1 'A' Some(Type::Text), None;
    BpcharArray 1014 "_bpchar" "character[]" -1 'A' Some(Type::Bpchar), None;
    VarcharArray 1015 "_varchar" "character varying[]" -1 'A' Some(Type::Varchar), None;
    Int8Array 1016 "_int8" "bigint[]" -1 'A' Some(Type::Int8), None;
    Float4Array 1021 "_float4" "real[]" -1 'A' Some(Type::Float4), None;
    Float8Array 1022 "_float8" "double precision[]" -1 'A' Some(Type::Float8), None;
    OidArray 1028 "_oid" "oid[]" -1 'A' Some(Type::Oid), None;
    Bpchar 1042 "bpchar" "character" -1 'S' None, Some(Type::BpcharArray);
    Varchar 1043 "varchar" "character varying" -1 'S' None, Some(Type::VarcharArray);
    Date 1082 "date" "date" 4 'D' None, Some(Type::DateArray);
    Time 1083 "time" "time without time zone" 8 'D' None, Some(Type::TimeArray);
    Timestamp 1114 "timestamp" "timestamp without time zone" 8 'D' None, Some(Type::TimestampArray);
    TimestampArray 1115 "_timestamp" "timestamp without time zone[]" -1 'A' Some(Type::Timestamp), None;
    DateArray 1182 "_date" "date[]" -1 'A' Some(Type::Date), None;
    TimeArray 1183 "_time" "time without time zone[]" -1 'A' Some(Type::Time), None;
    Timestamptz 1184 "timestamptz" "timestamp with time zone" 8 'D' None, Some(Type::TimestamptzArray);
    TimestamptzArray 1185 "_timestamptz" "timestamp with time zone[]" -1 'A' Some(Type::Timestamptz), None;
    Interval 1186 "interval" "interval" 16 'T' None, Some(Type::IntervalArray);
    IntervalArray 1187 "_interval" "interval[]" -1 'A' Some(Type::Interval), None;
    Timetz 1266 "timetz" "time with time zone" 12 'D' None, Some(Type::TimetzArray);
    TimetzArray 1270 "_timetz" "time with time zone[]" -1 'A' Some(Type::Timetz), None;
    NumericArray 1231 "_numeric" "numeric[]" -1 'A' Some(Type::Numeric), None;
    Numeric 1700 "numeric" "numeric" -1 'N' None, Some(Type::NumericArray);
    Regclass 2205 "regclass" "regclass" 4 'N' None, None;
    Regtype 2206 "regtype" "regtype" 4 'N' None, None;
    Record 2249 "record" "record" -1 'P' None, None;
    Uuid 2950 "uuid" "uuid" 16 'U' None, Some(Type::UuidArray);
    UuidArray 2951 "_uuid" "uuid[]" -1 'A' Some(Type::Uuid), None;
    Void 2278 "void" "void" 4 'P' None, None;
    Jsonb 3802 "jsonb" "jsonb" -1 'U' None, Some(Type::JsonbArray);
    JsonbArray 3807 "_jsonb" "jsonb[]" -1 'A' Some(Type::Jsonb), None;
    Regnamespace 4089 "regnamespace" "regnamespace" 4 'N' None, None;
}

impl Type {
    /// Its row in the table of types.
    #[must_use]
    pub fn info(self) -> &'static TypeInfo {
        const NONE: TypeInfo = TypeInfo {
            ty: Type::Unknown,
            oid: 705,
            name: "unknown",
            display: "unknown",
            len: -2,
            category: 'X',
            element: None,
            array: None,
        };
        match self {
            Self::Enum(of) => of.info(),
            Self::EnumArray(of) => of.array_info(),
            Self::Composite(of) => of.info(),
            Self::CompositeArray(of) => of.array_info(),
            _ => TYPES.iter().find(|info| info.ty == self).unwrap_or(&NONE),
        }
    }

    /// Its number in `PostgreSQL`'s catalog.
    #[must_use]
    pub fn oid(self) -> u32 {
        self.info().oid
    }

    /// The type with this number.
    #[must_use]
    pub fn of_oid(oid: u32) -> Option<Self> {
        TYPES.iter().find(|info| info.oid == oid).map(|info| info.ty)
    }

    /// The type with this name of the catalog or of the standard.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let find = |name: &str| TYPES.iter().find(|info| info.name == name || info.display == name);
        find(name).map(|info| info.ty)
    }

    /// Bytes of a value, -1 if values have different lengths.
    #[must_use]
    pub fn len(self) -> i16 {
        self.info().len
    }

    /// Whether values have no bytes at all: no type is like that.
    #[must_use]
    pub fn is_empty(self) -> bool {
        false
    }

    /// The type of the elements of an array.
    #[must_use]
    pub fn element(self) -> Option<Self> {
        match self {
            Self::EnumArray(of) => Some(Self::Enum(of)),
            Self::CompositeArray(of) => Some(Self::Composite(of)),
            _ => self.info().element,
        }
    }

    /// The type of arrays of it.
    #[must_use]
    pub fn array(self) -> Option<Self> {
        match self {
            Self::Enum(of) => Some(Self::EnumArray(of)),
            Self::Composite(of) => Some(Self::CompositeArray(of)),
            _ => self.info().array,
        }
    }

    /// Whether values are texts: `text`, `varchar`, `char(n)`, `name`, `"char"`, and literals without a type.
    #[must_use]
    pub fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::Varchar | Self::Bpchar | Self::Name | Self::Char | Self::Unknown)
    }

    /// Whether values are rows.
    #[must_use]
    pub fn is_row(self) -> bool {
        matches!(self, Self::Record | Self::Composite(_))
    }

    /// Whether it is that of rows without a named type.
    #[must_use]
    pub fn is_record(self) -> bool {
        match self {
            Self::Record => true,
            Self::Composite(of) => of.is_anonymous(),
            _ => false,
        }
    }

    /// Its fields, if it is a type of rows that says them.
    #[must_use]
    pub fn attributes(self) -> Option<&'static [crate::composite::Attribute]> {
        if let Self::Composite(of) = self { Some(of.attributes()) } else { None }
    }

    /// Whether values are kept as integers: the integers, and numbers of objects.
    #[must_use]
    pub fn is_integer(self) -> bool {
        matches!(self, Self::Int2 | Self::Int4 | Self::Int8) || self.is_oid()
    }

    /// Whether values are numbers of objects.
    #[must_use]
    pub fn is_oid(self) -> bool {
        matches!(self, Self::Oid | Self::Regclass | Self::Regtype | Self::Regproc | Self::Regnamespace)
    }

    /// Whether one can count with it.
    #[must_use]
    pub fn is_number(self) -> bool {
        self.rank().is_some()
    }

    /// Its place among the number types: a sum has the type of the higher place.
    #[must_use]
    pub fn rank(self) -> Option<u8> {
        Some(match self {
            Self::Int2 => 1,
            Self::Int4 => 2,
            Self::Int8 => 3,
            Self::Numeric => 4,
            Self::Float4 => 5,
            Self::Float8 => 6,
            _ => return None,
        })
    }

    /// Limits of an integer type.
    #[must_use]
    pub fn limits(self) -> (i64, i64) {
        match self {
            Self::Int2 => (i16::MIN.into(), i16::MAX.into()),
            Self::Int4 => (i32::MIN.into(), i32::MAX.into()),
            Self::Int8 => (i64::MIN, i64::MAX),
            _ => (0, u32::MAX.into()),
        }
    }

    /// Its name with a modifier, as `format_type` writes it.
    #[must_use]
    pub fn with_modifier(self, modifier: i32) -> String {
        if let Some(digits) = crate::cast::second_digits(self, modifier) {
            let name = self.to_string();
            let (first, rest) =
                name.split_once(' ').map_or((name.as_str(), String::new()), |(a, b)| (a, format!(" {b}")));
            return format!("{first}({digits}){rest}");
        }
        match self {
            Self::Varchar | Self::Bpchar if modifier > 4 => format!("{self}({})", modifier - 4),
            Self::Numeric if modifier > 4 => {
                let (precision, scale) = crate::cast::digits_of(modifier);
                format!("numeric({precision},{scale})")
            }
            Self::Bpchar => "bpchar".into(),
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info().display)
    }
}
