package deadletter

import (
	"errors"
	"fmt"

	"github.com/postrider/postrider/store"
)

// refuseEdited is the error for an edit based on an outdated version of the dead letter.
func refuseEdited(number int64, seen, edits int) error {
	return fmt.Errorf("%w: dead letter %d has %d edits and the editor saw %d; look at it again (postrider dead show %d)", ErrEdited,
		number, edits, seen, number)
}

// checkImported rejects records that are not valid dead letters.
func checkImported(a store.ArchivedDead) error {
	switch {
	case a.Message == nil || a.Message.ID == "":
		return errors.New("it has no message with an id")
	case a.Unreadable != "":
		return fmt.Errorf("its message could not be read when it was exported (%s): give it headers there first (postrider dead edit), "+
			"or correct the line and remove \"unreadable\" from it", a.Unreadable)
	case a.Relay == "" || len(a.Relay) > 64:
		return fmt.Errorf("its relay or consumer is named %q; a name has 1 to 64 bytes", a.Relay)
	case a.DiedAt.IsZero():
		return errors.New("it does not say when it died")
	case a.State != store.DeadOpen && a.State != store.DeadRedriven && a.State != store.DeadDiscarded:
		return fmt.Errorf("its state is %q; it must be open, redriven or discarded", a.State)
	}
	return nil
}
