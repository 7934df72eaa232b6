import org.flywaydb.core.Flyway;

public class Migrate {
    public static void main(String[] args) {
        Flyway.configure().dataSource(args[0], args[1], args[2]).locations("filesystem:" + args[3]).load().migrate();
    }
}
