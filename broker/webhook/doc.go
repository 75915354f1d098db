// Package webhook publishes messages by HTTP POST to a URL, and helps receivers to accept them.
//
// # Request format
//
// The body is a CloudEvent in structured mode (application/cloudevents+json), so that the signature covers the whole
// envelope. Config.Binary sends the attributes as headers instead, which the signature does not cover. Other headers:
//
//	Idempotency-Key               the message ID
//	webhook-id                    the message ID, with dots percent-encoded
//	webhook-timestamp             time of this attempt, in seconds since 1970
//	webhook-signature             "v1," and the base64 of the HMAC-SHA256 over "id.timestamp.body", once per secret
//
// The last three follow Standard Webhooks (www.standardwebhooks.com), so its libraries can verify them; for our own
// verification, see Receiver. Characters of an ID that a header cannot hold are percent-encoded.
//
// # Order
//
// Each key has one message in flight; the next one is sent when the receiver has accepted it. Different keys, and
// messages without a key, are sent in up to Config.Concurrency concurrent requests.
//
// # Outcomes
//
//	2xx                                    accepted
//	408, 425, 429 and 5xx                  retried, after Retry-After if the response has it
//	429 and 503 with Retry-After, for      Unavailable for this time: the relay waits, and counts no attempt
//	three keys in a row
//	502, 503 and 504 for three keys, and    Unavailable: a gateway says that the receiver is not there
//	no other answer for two seconds
//	other 4xx                              dead-lettered
//	3xx                                    retried; redirects are not followed, correct the URL
//	connection lost, no answer in time     retried, or Unavailable if no other request was answered meanwhile
//	no connection, certificate rejected,
//	address not allowed                    Unavailable
//
// Any other answer, whatever its status, shows that the receiver is available, and affects only its own message.
//
// # Allowed addresses
//
// A user who can set the URL of a webhook could make this process connect to its own network. Connections are therefore
// made only to public addresses, unless Config.Allow permits others. The check applies to the address that is being
// connected to, after name resolution, so a DNS name that changes its address cannot bypass it. Proxies from the
// environment are not used, because they would bypass it.
//
// # Attempt log
//
// With Config.Attempts, the result of every attempt is recorded for operators. Deliveries do not wait for the log and do
// not depend on it.
package webhook
