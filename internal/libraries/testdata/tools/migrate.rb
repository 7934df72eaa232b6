require "active_record"

ActiveRecord::Base.establish_connection(ARGV[0])
ActiveRecord::Migration.verbose = false
context = ActiveRecord::MigrationContext.new(ARGV[1], ActiveRecord::SchemaMigration)
ARGV[2] == "down" ? context.down : context.up
