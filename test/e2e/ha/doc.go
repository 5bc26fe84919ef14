// Package ha makes the control planes of a cluster fail one after the other, while clients
// write and read, and measures the effect on the clients.
package ha
