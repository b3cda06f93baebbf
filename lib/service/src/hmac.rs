//! HMAC with SHA-256 (RFC 2104, FIPS 198-1).

use sha2::{Digest, Sha256};

const BLOCK_BYTES: usize = 64;

/// The code of a message that only the holder of the key can make.
pub fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    let hashed = Sha256::digest(key);
    let key = if key.len() > BLOCK_BYTES { hashed.as_slice() } else { key };
    let mut block = [0; BLOCK_BYTES];
    block.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    let padded = |pad: u8| block.map(|byte| byte ^ pad);
    let inner = Sha256::new().chain_update(padded(0x36)).chain_update(message);
    let outer = Sha256::new().chain_update(padded(0x5c));
    outer.chain_update(inner.finalize()).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ken_types::hex;

    /// RFC 4231, sections 4.2 to 4.8, without 4.6, whose code is cut short.
    #[test]
    fn test_vectors() {
        let counting: Vec<u8> = (1..=25).collect();
        let (long, longer) = (
            "Test Using Larger Than Block-Size Key - Hash Key First",
            "This is a test using a larger than block-size key and a larger than block-size data. The key needs to be hashed \
             before being used by the HMAC algorithm.",
        );
        let vectors: [(&[u8], &[u8], &str); 6] = [
            (&[0x0b; 20], b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
            (
                b"Jefe",
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (&[0xaa; 20], &[0xdd; 50], "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"),
            (&counting, &[0xcd; 50], "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"),
            (&[0xaa; 131], long.as_bytes(), "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"),
            (&[0xaa; 131], longer.as_bytes(), "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"),
        ];
        for (key, message, code) in vectors {
            assert_eq!(hex::encode(&hmac_sha256(key, message)), code);
        }
    }
}
