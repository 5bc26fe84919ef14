// Package ttlcache is a bounded cache whose entries expire. It caches the answers of
// other programs, such as the user of a token or an access decision.
package ttlcache
