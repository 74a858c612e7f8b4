//! Bytes as texts: MD5, and the base 64.

use std::fmt::Write;

use crate::error::{Error, Result, SqlState};

const SHIFTS: [u32; 16] = [7, 12, 17, 22, 5, 9, 14, 20, 4, 11, 16, 23, 6, 10, 15, 21];
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The constants of MD5: the sines of the whole numbers.
fn sine(number: u32) -> u32 {
    let value = (f64::from(number) + 1.0).sin().abs() * 4_294_967_296.0;
    lodestone_width::low_u32(lodestone_width::whole_u64(value.floor()))
}

/// The MD5 of bytes, in hexadecimal digits.
pub fn md5(bytes: &[u8]) -> String {
    let mut message = bytes.to_vec();
    message.push(0x80);
    while message.len() % 64 != 56 {
        message.push(0);
    }
    message.extend((lodestone_width::to_u64(bytes.len()).wrapping_mul(8)).to_le_bytes());
    let mut state = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let sines: Vec<u32> = (0..64).map(sine).collect();
    for chunk in message.chunks_exact(64) {
        let words: Vec<u32> = chunk.chunks_exact(4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]])).collect();
        let [mut a, mut b, mut c, mut d] = state;
        for step in 0..64 {
            let (mixed, place) = match step / 16 {
                0 => ((b & c) | (!b & d), step),
                1 => ((d & b) | (!d & c), (5 * step + 1) % 16),
                2 => (b ^ c ^ d, (3 * step + 5) % 16),
                _ => (c ^ (b | !d), (7 * step) % 16),
            };
            let sum = mixed.wrapping_add(a).wrapping_add(sines[step]).wrapping_add(words[place]);
            (a, d, c) = (d, c, b);
            b = b.wrapping_add(sum.rotate_left(SHIFTS[step / 16 * 4 + step % 4]));
        }
        for (part, value) in state.iter_mut().zip([a, b, c, d]) {
            *part = part.wrapping_add(value);
        }
    }
    state.iter().flat_map(|part| part.to_le_bytes()).fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        _ = write!(text, "{byte:02x}");
        text
    })
}

/// The text in base 64, with a line end after each 76 letters.
pub fn base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (number, chunk) in bytes.chunks(3).enumerate() {
        if number > 0 && number % 19 == 0 {
            text.push('\n');
        }
        let all = chunk.iter().fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let index = lodestone_width::to_usize(all >> (18 - 6 * place) & 63);
            text.push(if place <= lodestone_width::low_u32(lodestone_width::to_u64(chunk.len())) {
                char::from(LETTERS[index])
            } else {
                '='
            });
        }
    }
    text
}

/// The bytes of a text in base 64.
///
/// # Errors
/// 22023.
pub fn of_base64(text: &str) -> Result<Vec<u8>> {
    let bad = |message: String| Error::new(SqlState::INVALID_PARAMETER_VALUE, message);
    let (mut found, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        if byte == b'=' {
            break;
        }
        let place = LETTERS.iter().position(|letter| *letter == byte).ok_or_else(|| {
            bad(format!("invalid symbol \"{}\" found while decoding base64 sequence", char::from(byte)))
        })?;
        bits = bits << 6 | lodestone_width::low_u32(lodestone_width::to_u64(place));
        count += 1;
        if count % 4 == 0 {
            found.extend(&bits.to_be_bytes()[1..]);
            bits = 0;
        }
    }
    match count % 4 {
        0 => {}
        1 => return Err(bad("invalid base64 end sequence".into())),
        2 => found.push(lodestone_width::low_u8(u64::from(bits >> 4))),
        _ => found.extend(&(bits >> 2).to_be_bytes()[2..]),
    }
    Ok(found)
}
