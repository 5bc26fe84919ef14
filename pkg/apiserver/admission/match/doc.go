// Package match decides which requests a webhook or a policy applies to, and
// describes requests to them.
package match
