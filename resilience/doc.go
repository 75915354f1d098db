// Package resilience keeps calls to other systems from taking the caller down with them: with breakers, retries, bulkheads, rate limits
// and timeouts, by the name of the call.
//
//	set, err := resilience.New(resilience.Config{Operations: map[string]resilience.Policy{
//		"payment.*": {Timeout: 2 * time.Second, Bulkhead: resilience.Bulkhead{Calls: 20}},
//	}})
//	charge := set.Operation("payment.charge")
//	err = charge.Run(ctx, func(ctx context.Context) error { return provider.Charge(ctx, order) })
//
// # What it is for
//
// It stands between your code and the systems that the code calls. A relay needs none of it towards its broker: the relay itself finds
// out that a broker is down, waits, and retries.
//
// # In the handler of a message
//
// A relay or consumer retries a failed message, holds its key, and remembers. So in a handler an operation makes one attempt, unless
// Retry.InHandler says otherwise, and its errors say what the relay or consumer needs to know:
//
//	the call                                    | the message                                              | attempt counted
//	failed, or timed out                        | is retried with the backoff, or after the requested wait | yes
//	was declined                                | by the outcome of the error; Decline: dead-lettered      | yes
//	was not made: breaker open, at a limit      | waits until the breaker or limit lets calls through      | no
//
// If all messages of a relay need what is down, give the operation to relay.Config.Gate: then nothing is fetched, parked or counted while
// the breaker is open, and when it is half-open as many messages are handled as the breaker lets through.
//
// # Breakers belong to a process
//
// Each process finds out for itself that a dependency is down.
package resilience
