package saga

import "slices"

// maxOverruns bounds what a process remembers: a message whose partition moved to another process never comes back.
const maxOverruns = 256

// overruns are the IDs of messages whose local step took too long, oldest first. One that is removed for a newer one costs its step
// an attempt that is not counted.
type overruns []string

// add remembers a message.
func (o *overruns) add(id string) {
	if len(*o) >= maxOverruns {
		*o = slices.Delete(*o, 0, len(*o)-maxOverruns+1)
	}
	*o = append(*o, id)
}

// take removes a message and reports whether it was remembered.
func (o *overruns) take(id string) bool {
	i := slices.Index(*o, id)
	if i < 0 {
		return false
	}
	*o = slices.Delete(*o, i, i+1)
	return true
}
