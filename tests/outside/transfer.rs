//! Many octets through one connection: segments that are cut late, checksums that devices compute.

use std::{
    io::{Read as _, Write as _},
    thread,
};

use crate::{
    cluster::{Cluster, Service, TARGET},
    talk::{PATIENCE, connect, serve},
};

/// Octets each way.
const AMOUNT: usize = 100 << 20;
const PIECE: usize = 256 << 10;

/// A piece that looks like no other.
fn piece(number: usize) -> Vec<u8> {
    let mut dice = sidestep_tests::dice::Dice::new(number as u64);
    let mut piece = vec![0; PIECE];
    for word in piece.chunks_exact_mut(4) {
        word.copy_from_slice(&(dice.below(1 << 32) as u32).to_ne_bytes());
    }
    piece
}

#[test]
fn a_hundred_megabytes_arrive_as_they_were_sent() {
    let cluster = Cluster::new("bulk");
    let (near, far) = (Service::new("near", 10), Service::new("far", 11));
    let here = cluster.node_a.pod("here").unwrap();
    let there = cluster.node_b.pod("there").unwrap();
    serve(&here, TARGET);
    serve(&there, TARGET);
    cluster.write(near, &[(&here, &cluster.node_a)]);
    cluster.write(far, &[(&there, &cluster.node_b)]);
    let _agent = cluster.agent(&cluster.node_a, &[]);
    let pieces: Vec<Vec<u8>> = (0..8).map(piece).collect();
    let to = [
        near.node_ports(&cluster.node_a),
        far.node_ports(&cluster.node_a),
    ];
    for to in to.concat() {
        let (mut stream, _) = connect(&cluster.client, to, PATIENCE).unwrap();
        let mut writer = stream.try_clone().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..AMOUNT / PIECE {
                    writer.write_all(&pieces[number % pieces.len()]).unwrap();
                }
            });
            let mut read = vec![0; PIECE];
            for number in 0..AMOUNT / PIECE {
                stream.read_exact(&mut read).unwrap();
                assert!(
                    read == pieces[number % pieces.len()],
                    "{to}: piece {number}"
                );
            }
        });
    }
}
