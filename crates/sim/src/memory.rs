//! The world's memory: one arena for each shard's stripe cache, a buffer for each request, and
//! the parity work on them.

use lapstrake_engine::journal::Sealing;
use lapstrake_engine::{Buf, BufId, Comparison, Compute, Finding, Piece, ZERO_BYTES};
use lapstrake_parity::kernels;

static ZEROS: [u8; ZERO_BYTES as usize] = [0; ZERO_BYTES as usize];

#[derive(Debug)]
pub(crate) struct Memory {
    buffers: Vec<Vec<u8>>,
    free: Vec<u32>,
}

impl Memory {
    /// Arenas of these sizes; the n-th is behind `BufId(n)`.
    pub(crate) fn new(arenas: impl Iterator<Item = usize>) -> Self {
        Self { buffers: arenas.map(|bytes| vec![0; bytes]).collect(), free: Vec::new() }
    }

    pub(crate) fn take(&mut self, bytes: usize) -> BufId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.buffers.push(Vec::new());
            self.buffers.len() as u32 - 1
        });
        let buffer = &mut self.buffers[id as usize];
        buffer.clear();
        // What no member filled must not look like data.
        buffer.resize(bytes, 0xee);
        BufId(id)
    }

    pub(crate) fn give(&mut self, id: BufId) {
        // Whoever still uses it reads and writes past the end.
        self.buffers[id.0 as usize].clear();
        self.free.push(id.0);
    }

    pub(crate) fn bytes(&self, buf: Buf, len: u32) -> &[u8] {
        if buf.id == BufId::ZERO {
            return &ZEROS[..len as usize];
        }
        &self.buffers[buf.id.0 as usize][buf.offset as usize..][..len as usize]
    }

    pub(crate) fn bytes_mut(&mut self, buf: Buf, len: u32) -> &mut [u8] {
        &mut self.buffers[buf.id.0 as usize][buf.offset as usize..][..len as usize]
    }

    pub(crate) fn gather(&self, pieces: &[Piece]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(pieces.iter().map(|piece| piece.len as usize).sum());
        for piece in pieces {
            bytes.extend_from_slice(self.bytes(piece.buf, piece.len));
        }
        bytes
    }

    pub(crate) fn scatter(&mut self, pieces: &[Piece], mut bytes: &[u8]) {
        for piece in pieces {
            let (head, rest) = bytes.split_at(piece.len as usize);
            self.bytes_mut(piece.buf, piece.len).copy_from_slice(head);
            bytes = rest;
        }
    }

    pub(crate) fn compute(&mut self, compute: &Compute) {
        match compute {
            Compute::Xor { dst, srcs, len } => {
                let mut out = vec![0; *len as usize];
                kernels().xor(&mut out, &self.list(srcs, *len));
                self.bytes_mut(*dst, *len).copy_from_slice(&out);
            }
            Compute::XorInto { dst, srcs, len } => {
                let mut out = self.bytes(*dst, *len).to_vec();
                kernels().xor_into(&mut out, &self.list(srcs, *len));
                self.bytes_mut(*dst, *len).copy_from_slice(&out);
            }
            Compute::Pq { p, q, data, len } => {
                let (mut p_out, mut q_out) = (vec![0; *len as usize], vec![0; *len as usize]);
                kernels().pq(&mut p_out, &mut q_out, &self.list(data, *len));
                self.bytes_mut(*p, *len).copy_from_slice(&p_out);
                self.bytes_mut(*q, *len).copy_from_slice(&q_out);
            }
            Compute::MulInto { dst, coefs, srcs, len } => {
                let mut out = self.bytes(*dst, *len).to_vec();
                kernels().mul_add(&mut out, coefs, &self.list(srcs, *len));
                self.bytes_mut(*dst, *len).copy_from_slice(&out);
            }
            Compute::Mul { dsts, rows, srcs, len } => {
                let mut outs = vec![vec![0; *len as usize]; dsts.len()];
                let mut refs: Vec<&mut [u8]> = outs.iter_mut().map(Vec::as_mut_slice).collect();
                let rows: Vec<&[u8]> = rows.iter().map(|row| row.as_slice()).collect();
                kernels().mul(&mut refs, &rows, &self.list(srcs, *len));
                for (dst, out) in dsts.iter().zip(&outs) {
                    self.bytes_mut(*dst, *len).copy_from_slice(out);
                }
            }
        }
    }

    pub(crate) fn compare(&self, compare: &Comparison) -> Vec<Finding> {
        compare.run(kernels(), |buf, len| self.bytes(buf, len))
    }

    pub(crate) fn seal(&mut self, sealing: &Sealing) {
        let block = sealing.run(|buf, len| self.bytes(buf, len));
        self.bytes_mut(sealing.meta, block.len() as u32).copy_from_slice(&block);
    }

    fn list(&self, bufs: &[Buf], len: u32) -> Vec<&[u8]> {
        bufs.iter().map(|&buf| self.bytes(buf, len)).collect()
    }
}
