// Package database runs PostgreSQL as a StatefulSet with a claim of the default
// StorageClass, on a cluster of node containers, and kills what it runs on while clients
// write. At the end the database has every transaction that it has acknowledged.
package database
