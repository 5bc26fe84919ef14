// Package upgrade brings a cluster from the previous commit's package to this
// one's, a machine after the other, while clients write and ask; and before
// that to one that does not work, which is rolled back.
package upgrade
