// Package csrcleaner deletes certificate signing requests that nobody waits
// for any more: an hour after they were approved and signed, denied or failed,
// a day after they were made and left undecided, and when the certificate has
// expired.
package csrcleaner
