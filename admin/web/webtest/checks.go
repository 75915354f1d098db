package webtest

import (
	"context"

	"github.com/postrider/postrider/doctor"
)

// Checks are checks of a database with something to say, and with text, which findings quote.
func Checks(text string) []doctor.Check {
	return []doctor.Check{
		{Name: "db.old_transaction", Title: "No transaction is open for long", Run: func(context.Context) ([]doctor.Finding, error) {
			return []doctor.Finding{{
				Level: doctor.Fault, Target: "pid 4711" + text, Message: "A transaction that has published is open for 2 h 14 min." + text,
				Impact: "Its messages wait for its commit, and retention stops before them. Other messages are not delayed.",
				Fix: []doctor.Fix{
					{Text: "find out what it does; to end it:" + text, Command: "select pg_terminate_backend(4711);" + text},
					{Text: "so that it does not happen again:", Command: "alter role app set idle_in_transaction_session_timeout = '1min';"},
				},
				Evidence: "pg_stat_activity: user app, application shop-api, idle in transaction" + text,
			}}, nil
		}},
		{Name: "db.blocked", Title: "Nobody waits long for a lock on tables of the outbox", Run: func(context.Context) ([]doctor.Finding, error) {
			return nil, &doctor.MissingError{Reason: "role shop_ops does not see what other sessions do" + text, Fix: doctor.Fix{
				Text: "as a superuser:", Command: "grant pg_read_all_stats to shop_ops;" + text,
			}}
		}},
	}
}
