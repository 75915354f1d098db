package postrider

import (
	"crypto/md5"
	"encoding/binary"
)

// PartitionOf says which of n partitions a message belongs to: the first four bytes of the MD5 sum of its key (of its ID
// when it has no key), read big-endian, modulo n. MD5 is here a hash that every database has, so that SQL and other
// languages arrive at the same partition; nothing secret depends on it.
func PartitionOf(key, id string, n int) int {
	if key == "" {
		key = id
	}
	sum := md5.Sum([]byte(key))
	return int(binary.BigEndian.Uint32(sum[:4]) % uint32(n))
}
