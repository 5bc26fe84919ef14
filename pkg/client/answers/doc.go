// Package answers remembers for a while what others have said when they were
// asked: whose a token is, what a user may do.
package answers
