// Package iptables translates the proxy's model into iptables rules (pure), writes
// them with one iptables-restore per sync, and repairs changes that other programs
// make to them.
package iptables
