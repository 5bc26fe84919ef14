// Package iptables turns the proxy's model into iptables rules and holds the
// kernel to them: plan (pure), then one iptables-restore a sync, then a watch
// for those who change our rules behind our back.
package iptables
