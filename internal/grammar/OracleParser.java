import com.alibaba.druid.DbType;
import com.alibaba.druid.sql.SQLUtils;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Parses each file below a folder with Druid's parser of Oracle's SQL. It prints a line for each file: its path, a tab, and
 * the parser's first error, or nothing if the parser accepts the file.
 */
final class OracleParser {
    public static void main(String[] arguments) throws IOException {
        try (var files = Files.walk(Path.of(arguments[0])).filter(Files::isRegularFile)) {
            for (Path file : (Iterable<Path>) files::iterator) {
                System.out.println(file + "\t" + error(Files.readString(file)).replaceAll("\\s+", " "));
            }
        }
    }

    private static String error(String sql) {
        try {
            SQLUtils.parseStatements(sql, DbType.oracle);
            return "";
        } catch (RuntimeException | StackOverflowError e) {
            return e.toString();
        }
    }
}
