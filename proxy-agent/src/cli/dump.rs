//! `sidestep dump`: the entries of one map, as they are.

use std::io::Write;

use anyhow::{Context as _, anyhow};
use clap::Args;
use proxy_common::map;

use super::{CommonArgs, Exit, Output, table::table};
use crate::datapath::{self, Pins, Record};

/// Flags of `sidestep dump`.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  sidestep dump                     which maps there are
  sidestep dump frontend            one line per entry
  sidestep dump backend -o json     one JSON array")]
pub struct DumpArgs {
    /// Name of the map; without it all maps are listed with what they hold.
    pub map: Option<String>,
}

/// Prints a map, or which there are.
pub(super) fn run(
    args: &DumpArgs,
    common: &CommonArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let Some(name) = &args.map else {
        return list(common.output, out);
    };
    let spec = map::ALL
        .iter()
        .find(|spec| spec.name == name)
        .ok_or_else(|| anyhow!("there is no map {name:?}: `sidestep dump` lists all"))?;
    let pins = Pins::new(&common.bpffs);
    let mut first = true;
    let mut written = Ok(());
    let mut print = |record: Record| {
        if written.is_ok() {
            written = row(out, common.output, first, &record);
            first = false;
        }
    };
    datapath::dump(&pins, spec, &mut print).with_context(|| format!("dump map {name}"))?;
    written?;
    if common.output == Output::Json {
        writeln!(out, "{}", if first { "[]" } else { "\n]" })?;
    }
    Ok(Exit::Success)
}

fn row(out: &mut dyn Write, output: Output, first: bool, record: &Record) -> anyhow::Result<()> {
    match output {
        Output::Table => writeln!(out, "{record}")?,
        Output::Json => {
            write!(out, "{}", if first { "[\n" } else { ",\n" })?;
            serde_json::to_writer(out, record)?;
        }
    }
    Ok(())
}

fn list(output: Output, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match output {
        Output::Table => {
            let rows = map::ALL
                .iter()
                .map(|spec| vec![spec.name.to_owned(), spec.help.to_owned()]);
            write!(out, "{}", table(&["MAP", "WHAT IT HOLDS"], rows))?;
        }
        Output::Json => {
            let maps: Vec<_> = map::ALL
                .iter()
                .map(|spec| serde_json::json!({ "map": spec.name, "help": spec.help }))
                .collect();
            super::json(out, &maps)?;
        }
    }
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datapath::Field;

    #[test]
    fn entries_are_lines_of_text_or_elements_of_one_array() {
        let record = |id: u32| Record(vec![("slot", id.into()), ("state", Field::None)]);
        let mut text = Vec::new();
        let mut json = Vec::new();
        for (first, id) in [(true, 1), (false, 2)] {
            row(&mut text, Output::Table, first, &record(id)).unwrap();
            row(&mut json, Output::Json, first, &record(id)).unwrap();
        }
        assert_eq!(
            String::from_utf8(text).unwrap(),
            "slot=1 state=-\nslot=2 state=-\n"
        );
        assert_eq!(
            String::from_utf8(json).unwrap(),
            "[\n{\"slot\":1,\"state\":null},\n{\"slot\":2,\"state\":null}"
        );
    }

    #[test]
    fn without_a_name_every_map_is_listed() {
        let mut text = Vec::new();
        list(Output::Table, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("MAP         WHAT IT HOLDS\n"), "{text}");
        for spec in map::ALL {
            let line = text.lines().find(|line| line.starts_with(spec.name));
            assert!(
                line.is_some_and(|line| line.ends_with(spec.help)),
                "{}",
                spec.name
            );
        }
    }
}
