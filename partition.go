package postrider

import (
	"crypto/md5"
	"encoding/binary"
)

// PartitionOf returns the partition, of n, that a message belongs to: the first four bytes of the MD5 sum of its key (of
// its ID when it has no key), read big-endian, modulo n. It uses MD5 because every database has it, so that SQL and other
// languages compute the same partition; it has no security purpose.
func PartitionOf(key, id string, n int) int {
	if key == "" {
		key = id
	}
	sum := md5.Sum([]byte(key))
	return int(binary.BigEndian.Uint32(sum[:4]) % uint32(n))
}
