// Package clusterroleaggregation gives cluster roles with an aggregation rule
// the rules of all roles that the rule selects.
package clusterroleaggregation
