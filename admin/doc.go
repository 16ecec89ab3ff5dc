// Package admin serves health, readiness and metrics over HTTP on admin.listen. It only shows (GET and HEAD), holds no
// state of its own, and says nothing about payloads (I10). Everything it needs is handed in as functions, so it knows
// neither pipelines nor metrics.
package admin
