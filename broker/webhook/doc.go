// Package webhook publishes messages by HTTP POST to a URL, and helps whoever receives them.
//
// # What is sent
//
// The body is a CloudEvent in structured mode (application/cloudevents+json), so that the signature covers the whole
// envelope; Config.Binary sends the attributes as headers instead, which the signature does not cover. Further headers:
//
//	Idempotency-Key               the message ID
//	webhook-id                    the same, its dots percent-encoded
//	webhook-timestamp             when this attempt was made, in seconds since 1970
//	webhook-signature             "v1," and the base64 of the HMAC-SHA256 over "id.timestamp.body", once for each secret
//
// The last three are those of Standard Webhooks (www.standardwebhooks.com), so that its libraries can verify them; see
// Receiver for our own. What a header cannot hold of an ID stands there percent-encoded.
//
// # Order
//
// Of each key one message is under way; the next is sent when the receiver has accepted the one before. Different keys,
// and messages without one, are sent by up to Config.Concurrency requests at once.
//
// # Outcomes
//
//	2xx                                    accepted
//	408, 425, 429 and 5xx                  retried, after Retry-After if the answer has one
//	other 4xx                              dead
//	3xx                                    retried; redirects are not followed, correct the URL
//	connection lost, no answer in time     retried, or Unavailable when no other request was answered meanwhile
//	no connection, certificate refused,
//	address not allowed                    Unavailable
//
// An answer, whatever its status, shows that the receiver is available: it concerns its message only.
//
// # Where requests may go
//
// Whoever may set the URL of a webhook could make this process talk to its own network. So connections go to public
// addresses only, unless Config.Allow says otherwise. That is checked when a connection is made, for the address that it is
// made to; no name that resolves to something else a moment later gets around it. Proxies from the environment are not
// used, because they would.
//
// # What was tried
//
// With Config.Attempts, what became of every attempt is kept for operators to read, beside the deliveries: these do not wait
// for it, and do not depend on it.
package webhook
