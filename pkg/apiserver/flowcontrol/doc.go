// Package flowcontrol bounds how many requests are worked on at a time, so that
// too many of them wait outside and not inside. Users belong to priority levels
// with seats of their own, named as those of upstream's API Priority and
// Fairness: what one level does leaves the seats of the others free. Within a
// level one user has at most half of the seats.
package flowcontrol
