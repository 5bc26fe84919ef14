// Package nodelogs answers queries for the logs of the node's services: from the
// journal, and from files below /var/log.
// https://kubernetes.io/docs/concepts/cluster-administration/system-logs/#log-query
package nodelogs
