//! A scenario on maps in memory, with the programs as a function.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use anyhow::{Context as _, ensure};
use proxy_agent::{datapath::Fake, plan::Snapshot};
use proxy_common::Protocol;
use sidestep_tests::data_plane::all_sizes;

use crate::{
    player::{Clients, Order, Player},
    reader,
    script::{Connect, Outcome, Script},
};

/// Plays as written; with `update`, rewrites the file's map dumps.
pub(crate) fn as_written(script: &Script, update: bool) -> anyhow::Result<()> {
    let player = player(script, Order::AsWritten)?;
    if !update {
        player.play()?;
        return Ok(());
    }
    let texts = player.updating().play()?;
    script.clone().update(texts)
}

/// Plays with writes that fail and events in other orders.
pub(crate) fn shuffled(script: &Script) -> anyhow::Result<()> {
    for seed in 1..=5 {
        player(script, Order::Shuffled { seed })?
            .play()
            .with_context(|| format!("seed {seed}"))?;
    }
    Ok(())
}

fn player(script: &Script, order: Order) -> anyhow::Result<Player<'_, Fake, Pure>> {
    let maps = Fake::with_sizes(all_sizes(&script.settings.sizes));
    Player::new(script, order, maps, Pure::default())
}

/// Clients that need no sockets.
#[derive(Default)]
struct Pure {
    maps: Snapshot,
    open: BTreeMap<String, (Connect, SocketAddr)>,
}

impl Clients for Pure {
    fn see(&mut self, maps: &Snapshot) -> anyhow::Result<()> {
        self.maps = maps.clone();
        Ok(())
    }

    fn node_addresses(&mut self, _: &BTreeSet<IpAddr>) -> anyhow::Result<()> {
        Ok(())
    }

    fn connect(&mut self, connect: &Connect) -> anyhow::Result<()> {
        let outcome = self.outcome(connect)?;
        ensure!(outcome == connect.outcome, "it is {outcome:?}");
        Ok(())
    }

    fn open(&mut self, name: &str, connect: &Connect) -> anyhow::Result<()> {
        self.connect(connect)?;
        let first = answers(&connect.outcome).first().copied();
        let first = first.context("nobody answers")?;
        self.open.insert(name.into(), (connect.clone(), first));
        Ok(())
    }

    fn ask(&mut self, name: &str, outcome: &Outcome) -> anyhow::Result<()> {
        let (connect, at) = self.open.get(name).context("it is not open")?.clone();
        let stays =
            connect.protocol == Protocol::Tcp || reader::is_alive(&self.maps, at, connect.protocol);
        if stays {
            ensure!(answers(outcome).contains(&at), "it stays with {at}");
            return Ok(());
        }
        let found = self.outcome(&connect)?;
        ensure!(found == *outcome, "it is {found:?}");
        Ok(())
    }
}

impl Pure {
    fn outcome(&self, connect: &Connect) -> anyhow::Result<Outcome> {
        reader::connect(&self.maps, connect.from, connect.to, connect.protocol)
            .map_err(anyhow::Error::msg)
    }
}

/// Who may answer.
pub(crate) fn answers(outcome: &Outcome) -> BTreeSet<SocketAddr> {
    match outcome {
        Outcome::Spread(all) | Outcome::Sticky(all) => all.clone(),
        _ => BTreeSet::new(),
    }
}
