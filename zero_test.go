package rowrelay_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay"
	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/inbox"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/admin"
	"github.com/rowrelay/rowrelay/relay/relaypgx"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
)

// A program may ignore an error and use the nil or zero value that was returned with it. No method of such a value panics.
func TestNilAndZeroValuesDoNotPanic(t *testing.T) {
	t.Parallel()
	for _, of := range []any{
		(*rowrelay.App)(nil), (*relay.Relay)(nil), (*relay.Consumer)(nil), (*relay.Delivery)(nil), (*sqlstore.Store)(nil), (*migrations.Migrations)(nil),
		(*outbox.Writer)(nil), (*inbox.Inbox)(nil), (*relaypgx.Listener)(nil), (*admin.Server)(nil),
	} {
		kind := reflect.TypeOf(of)
		for i := range kind.NumMethod() {
			method := kind.Method(i)
			for name, receiver := range map[string]reflect.Value{"nil": reflect.Zero(kind), "zero": reflect.New(kind.Elem())} {
				t.Run(kind.String()+"."+method.Name+" of "+name, func(t *testing.T) {
					t.Parallel()
					defer func() {
						if p := recover(); p != nil {
							t.Errorf("panic: %v", p)
						}
					}()
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					args := []reflect.Value{receiver}
					for j := 1; j < method.Type.NumIn(); j++ {
						switch in := method.Type.In(j); {
						case in == reflect.TypeFor[context.Context]():
							args = append(args, reflect.ValueOf(ctx))
						case method.Type.IsVariadic() && j == method.Type.NumIn()-1:
						default:
							args = append(args, reflect.Zero(in))
						}
					}
					method.Func.Call(args)
				})
			}
		}
	}
}
