// Package csrcleaner deletes certificate signing requests: an hour after they were signed,
// denied or failed, a day after they were created if they are undecided, and when the
// certificate has expired.
package csrcleaner
