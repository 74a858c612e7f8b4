//! Commands of the shell that begin with a backslash, as those of psql: each is a query of the catalog, or a setting.

/// The work that a command asks for.
#[derive(Debug, PartialEq)]
pub(super) enum Command {
    /// Queries, each with the title of its answer.
    Queries(Vec<(String, String)>),
    Timing,
    Expanded,
    /// The statements of a file.
    Include(String),
    Echo(String),
    Help,
    Quit,
}

/// The list of `\?`.
pub(super) const HELP: &str = "\
\\d [NAME]     tables, views and sequences; with a name its columns, indexes and keys
\\dt [PATTERN] tables          \\di indexes   \\dv views     \\ds sequences
\\dn [PATTERN] schemas         \\du roles     \\df functions \\l  databases
\\timing       on or off: how long statements take
\\x            on or off: a line for each column
\\i FILE       run the statements of a file
\\echo TEXT    print a text
\\q            quit";

/// Reads a line that begins with a backslash. `None`: there is no such command.
pub(super) fn read(line: &str) -> Option<Command> {
    let line = line.trim().trim_end_matches(';');
    let (name, argument) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let argument = argument.trim();
    let one = |title: &str, query: String| Some(Command::Queries(vec![(title.to_owned(), query)]));
    // The letter `+` asks psql for more columns.
    match name.trim_end_matches('+') {
        "\\q" => Some(Command::Quit),
        "\\?" => Some(Command::Help),
        "\\timing" => Some(Command::Timing),
        "\\x" => Some(Command::Expanded),
        "\\echo" => Some(Command::Echo(argument.to_owned())),
        "\\i" if !argument.is_empty() => Some(Command::Include(argument.to_owned())),
        "\\d" if !argument.is_empty() => Some(Command::Queries(described(argument))),
        "\\d" => one("List of relations", relations("r p v S", "")),
        "\\dt" => one("List of relations", relations("r p", argument)),
        "\\di" => one("List of relations", relations("i I", argument)),
        "\\dv" => one("List of relations", relations("v", argument)),
        "\\ds" => one("List of relations", relations("S", argument)),
        "\\dn" => one(
            "List of schemas",
            format!(
                "select nspname as \"Name\", pg_get_userbyid(nspowner) as \"Owner\" from pg_namespace where nspname !~ \
                 '^pg_' and nspname <> 'information_schema'{} order by 1",
                like("nspname", argument)
            ),
        ),
        "\\du" | "\\dg" => one(
            "List of roles",
            format!(
                "select rolname as \"Role name\", rolsuper as \"Superuser\", rolcanlogin as \"Can login\" \
                 from pg_roles where true{} order by 1",
                like("rolname", argument)
            ),
        ),
        "\\df" => one(
            "List of functions",
            format!(
                "select nspname as \"Schema\", proname as \"Name\", pg_get_function_result(p.oid) as \"Result data \
                 type\", pg_get_function_arguments(p.oid) as \"Argument data types\" from pg_proc p join \
                 pg_namespace n on n.oid = pronamespace where {} order by 1, 2, 4",
                match argument {
                    "" => "nspname not in ('pg_catalog', 'information_schema')".to_owned(),
                    pattern => format!("true{}", like("proname", pattern)),
                }
            ),
        ),
        "\\l" => one(
            "List of databases",
            "select datname as \"Name\", pg_get_userbyid(datdba) as \"Owner\", pg_encoding_to_char(encoding) as \
             \"Encoding\" from pg_database order by 1"
                .to_owned(),
        ),
        _ => None,
    }
}

/// A condition on a name: `*` and `?` stand for letters, as in psql. None without a pattern.
fn like(column: &str, pattern: &str) -> String {
    if pattern.is_empty() {
        return String::new();
    }
    let mut found = String::new();
    for letter in pattern.to_lowercase().chars() {
        match letter {
            '*' => found += ".*",
            '?' => found.push('.'),
            '\'' => found += "''",
            '_' => found.push('_'),
            letter if letter.is_alphanumeric() => found.push(letter),
            letter => found.extend(['[', letter, ']']),
        }
    }
    format!(" and {column} ~ '^({found})$'")
}

/// A name, perhaps with a schema before it, as conditions on both.
fn named(pattern: &str) -> String {
    match pattern.split_once('.') {
        Some((schema, name)) => like("nspname", schema) + &like("relname", name),
        None if pattern.is_empty() => " and nspname not in ('pg_catalog', 'information_schema')".to_owned(),
        None => like("relname", pattern),
    }
}

fn relations(kinds: &str, pattern: &str) -> String {
    let kinds: Vec<String> = kinds.split(' ').map(|kind| format!("'{kind}'")).collect();
    format!(
        "select nspname as \"Schema\", relname as \"Name\", case relkind when 'r' then 'table' when 'p' then \
         'partitioned table' when 'v' then 'view' when 'S' then 'sequence' when 'I' then 'partitioned index' else \
         'index' end as \"Type\", pg_get_userbyid(relowner) as \"Owner\" from pg_class c join pg_namespace n on n.oid = \
         relnamespace where relkind in ({}){} order by 1, 2",
        kinds.join(", "),
        named(pattern)
    )
}

/// The queries about one relation.
fn described(name: &str) -> Vec<(String, String)> {
    let of = format!(
        "select c.oid from pg_class c join pg_namespace n on n.oid = relnamespace where pg_table_is_visible(c.oid){}",
        named(name)
    );
    let of = if name.contains('.') { of.replace("pg_table_is_visible(c.oid)", "true") } else { of };
    vec![
        (
            format!("Columns of {name}"),
            format!(
                "select attname as \"Column\", format_type(atttypid, atttypmod) as \"Type\", case when attnotnull then \
                 'not null' else '' end as \"Nullable\", coalesce(pg_get_expr(adbin, adrelid), '') as \"Default\" from \
                 pg_attribute a left join pg_attrdef d on adrelid = attrelid and adnum = attnum where attrelid in \
                 ({of}) and attnum > 0 and not attisdropped order by attrelid, attnum"
            ),
        ),
        (
            "Indexes".to_owned(),
            format!(
                "select pg_get_indexdef(indexrelid) as \"Definition\" from pg_index where indrelid in ({of}) order by 1"
            ),
        ),
        (
            "Constraints".to_owned(),
            format!(
                "select conname as \"Name\", pg_get_constraintdef(oid) as \"Definition\" from pg_constraint where \
                 conrelid in ({of}) order by 1"
            ),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read() {
        assert_eq!(read("\\q"), Some(Command::Quit));
        assert_eq!(read(" \\timing "), Some(Command::Timing));
        assert_eq!(read("\\i  a.sql"), Some(Command::Include("a.sql".into())));
        assert_eq!(read("\\i"), None);
        assert_eq!(read("\\nothing"), None);
        assert_eq!(like("relname", "a*_?'.x"), " and relname ~ '^(a.*_.''[.]x)$'");
    }
}
