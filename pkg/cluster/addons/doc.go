// Package addons applies the objects that every new cluster has in addition to
// its daemons: the cluster DNS, metrics-server and the default StorageClass.
package addons
