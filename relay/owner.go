package relay

import "time"

// Owner is one running relay process.
type Owner struct {
	// ID is unique to the process and run, e.g. "host-4711-0190f3…"; Host and Version are for operators.
	ID, Host, Version string
	// Topics is the filter that the process is configured with: sorted, each pattern once, "*" alone for all topics. A process
	// without a filter, e.g. an operator's, registers none.
	Topics []string
}

// FilterKept is how long the filter of a process that ended without Leave still counts.
const FilterKept = time.Hour

// View is who works on a relay right now.
type View struct {
	// Alive is the number of owners that are alive, the caller included.
	Alive int
	// Partitions has an entry for each partition that is held.
	Partitions []PartitionView
	// Filter is in effect while the leases in Partitions hold.
	Filter Filter
}

// PartitionView says who holds a partition.
type PartitionView struct {
	Partition int
	// Owner is the holder's Owner.ID, Token the lease's.
	Owner, Token string
}
