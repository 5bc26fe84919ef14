// Package ha takes the control planes of a cluster away, one after the other,
// while clients write and ask, and measures what they notice.
package ha
