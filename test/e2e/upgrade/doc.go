// Package upgrade upgrades a cluster from the previous commit's package to this one's, one machine
// after another, while clients write and read; and before that to a broken package, which is
// rolled back.
package upgrade
