// Package addons puts into a new cluster what it runs beside its daemons: the
// cluster's name servers.
package addons
